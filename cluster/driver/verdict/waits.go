package verdict

import (
	"regexp"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// wait is what a thread waits for.
type wait int

const (
	waitUnknown wait = iota
	waitFile
	waitNetwork
	waitLock
	waitSleep
	waitChild
	waitPoll // for one of several descriptors, or a time
	waitGC   // does not wait: it collects garbage
)

// detail returns it as part of a verdict.
func (w wait) detail() string {
	return [...]string{
		"", "waiting for a file", "waiting for the network", "waiting for a lock", "sleeping", "waiting for a child process",
		"", "collecting garbage",
	}[w]
}

// class returns the class of a task whose main thread waits for it, if nothing else is known.
func (w wait) class() Class {
	return [...]Class{Unknown, IO, IO, Lock, Lock, Lock, Unknown, Computing}[w]
}

// channels match functions of the kernel, from versions 4 to 6, in which a thread sleeps.
var channels = sync.OnceValue(func() map[wait]*regexp.Regexp {
	return map[wait]*regexp.Regexp{
		// Pipes, then disks and file systems over the network: NFS, FUSE, CephFS, SMB, Lustre.
		waitFile: regexp.MustCompile(`^(anon_|fifo_)?pipe_(read|write|wait)|^wait_for_partner|^fifo_open` +
			`|^(io_schedule|folio_wait|wait_on_page|wait_on_bit|__wait_on|bit_wait_io|blk_|jbd2_|ext4_|xfs_|btrfs_|do_sync|` +
			`balance_dirty|rwsem_down|d_alloc_parallel|lookup_slow|n_tty_)` +
			`|^(nfs|rpc_wait|rpc_execute|request_wait_answer|fuse_|ceph_|cifs_|smb2_|wait_for_response|ll_|cl_|osc_|ptlrpc_|` +
			`v9fs_|p9_)`),
		waitNetwork: regexp.MustCompile(`^(sk_wait|wait_woken|tcp_|inet_|unix_|skb_wait|__skb_wait|sock_|udp_)`),
		waitLock:    regexp.MustCompile(`^(futex|do_futex|__futex)`),
		waitSleep:   regexp.MustCompile(`^(hrtimer_nanosleep|do_nanosleep|common_nsleep|clock_nanosleep)`),
		waitChild:   regexp.MustCompile(`^(do_wait|kernel_wait|kernel_waitid)`),
		waitPoll:    regexp.MustCompile(`^(poll_schedule|do_poll|do_sys_poll|do_select|core_sys_select|ep_poll|do_epoll)`),
	}
})

type codePattern struct {
	wait wait
	re   *regexp.Regexp
}

// codes match a line of source that calls a function which waits. They decide where the kernel hides wait channels, and
// which of several causes a channel has.
var codes = sync.OnceValue(func() []codePattern {
	return []codePattern{
		{waitGC, regexp.MustCompile(`\bgc\.collect\(`)},
		{waitSleep, regexp.MustCompile(`\bsleep\(`)},
		{waitChild, regexp.MustCompile(`\bsubprocess\.|\.communicate\(|\bos\.(system|wait\w*)\(`)},
		{waitNetwork, regexp.MustCompile(`\.recv\w*\(|\.accept\(|\burlopen\(|\brequests\.`)},
		{
			waitLock, regexp.MustCompile(
				`\.(acquire|join|get|put|wait|result)\(|^(async )?with [\w.\[\]]*([lL]ock|[mM]utex|[sS]em|[cC]ond|\b[lL]\b)`),
		},
		{
			waitFile, regexp.MustCompile(`\bopen\(|\.(read|readline|readlines|readinto|write|flush)\(|\bos\.(read|write|fsync|` +
				`open)\(|\bnp\.(load|save)|\bread_\w+\(`),
		},
	}
})

// ofCode returns what a line of source waits for, if it names that.
func ofCode(code string) wait {
	for _, c := range codes() {
		if c.re.MatchString(code) {
			return c.wait
		}
	}
	return waitUnknown
}

// ofChannel returns what a thread in this wait channel waits for.
func ofChannel(channel string) wait {
	for w, re := range channels() {
		if re.MatchString(channel) {
			return w
		}
	}
	return waitUnknown
}

// collectsForJAX is a function that JAX has Python call during each garbage collection, whose frame is then innermost.
const collectsForJAX = "_xla_gc_callback"

// waitOf returns what a thread waits for: by its wait channel, and where that leaves it open by its line of source.
func waitOf(t *clusterpb.ThreadStack) wait {
	code := waitUnknown
	if frames := t.GetFrames(); len(frames) > 0 { // the innermost one waits
		code = ofCode(frames[0].GetCode())
		if f := frames[0].GetFunction(); f == clusterpb.CollectingGarbage || base(f) == collectsForJAX {
			code = waitGC
		}
	}
	if code == waitGC {
		return waitGC
	}
	w := ofChannel(t.GetWaitChannel())
	switch {
	case w == waitUnknown && t.GetState() == "D":
		return waitFile
	case w == waitUnknown && t.GetState() != "R", w == waitPoll:
		return code // Python 3.10 sleeps in select
	}
	return w
}
