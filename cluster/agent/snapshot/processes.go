package snapshot

import (
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// Letters of states in /proc.
const (
	running         = "R"
	uninterruptible = "D"
	stopped         = "T"
	traced          = "t"
)

// fileChannel matches the wait channels of threads that sleep interruptibly until a pipe or a remote file system
// answers: TensorFlow and others read data in such threads.
var fileChannel = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`pipe_|^wait_for_partner|^request_wait_answer|^fuse_|^nfs|^rpc_|^cifs_|^p9_|^ceph_`)
})

// reading has the data of /proc about a task at one moment.
type reading struct {
	at        time.Time
	threads   []proc.Thread // of the task's process, the main thread first
	processes map[int]proc.Stat
	pid       int
}

// read reads the task's process and its descendants; ok is false if the process has ended.
func read(pid int) (r reading, ok bool) {
	r = reading{at: time.Now(), pid: pid, processes: map[int]proc.Stat{}}
	if r.threads = proc.Threads(pid); len(r.threads) == 0 {
		return r, false
	}
	table := proc.ReadTable()
	if _, ok := table[pid]; !ok {
		return r, false
	}
	below := table.Below(pid)
	slices.Sort(below)
	for _, p := range append([]int{pid}, below[:min(len(below), maxChildren)]...) {
		r.processes[p] = table[p]
	}
	return r, true
}

// again reads the same processes once more. The difference is their use of the CPU.
func (r reading) again() reading {
	now := reading{at: time.Now(), pid: r.pid, threads: proc.Threads(r.pid), processes: map[int]proc.Stat{}}
	for p := range r.processes {
		if s, ok := proc.Read(p); ok {
			now.processes[p] = s
		}
	}
	return now
}

// isStopped reports whether a signal or a debugger has stopped the process.
func (r reading) isStopped() bool {
	return r.threads[0].State == stopped || r.threads[0].State == traced
}

// Number and pause of the readings of competes, and the share of a core below which a thread hardly runs.
const (
	looks      = 5
	looksApart = 10 * time.Millisecond
	hardlyRuns = 0.2 // of a core
)

// competes reports whether threads compete for the GIL or for a core. Then a thread that could run has hardly run
// since the reading. A thread that holds the GIL in native code either sleeps or has a core for itself.
func (r reading) competes() bool {
	before := newUsage(r, r).before
	for i := range looks {
		if i > 0 {
			time.Sleep(looksApart)
		}
		most := time.Duration(hardlyRuns * float64(time.Since(r.at)))
		if slices.ContainsFunc(proc.Threads(r.pid),
			func(t proc.Thread) bool { return t.State == running && t.CPU-before[t.ID] < most }) {
			return true
		}
	}
	return false
}

// describe adds to a snapshot the states from /proc at the moment of the stacks, and the use of the CPU between two
// readings.
func describe(s *clusterpb.Snapshot, when, first, last reading) {
	used := newUsage(first, last)
	each, sum := used.ofThreads()
	s.Process = process(when.pid, when.processes[when.pid], when.threads[0], sum)
	for _, pid := range slices.Sorted(maps.Keys(when.processes)) {
		if main, ok := proc.ReadThread(pid, pid); pid != when.pid && ok {
			s.Children = append(s.Children, process(pid, when.processes[pid], main, used.ofProcess(pid)))
		}
	}
	of := map[int32]*clusterpb.ThreadStack{}
	for _, t := range s.GetThreads() {
		if t.GetMain() {
			t.NativeId = int32(when.pid) // faulthandler does not write native numbers
		}
		of[t.GetNativeId()] = t
	}
	others := 0
	for i, t := range when.threads {
		stack := of[int32(t.ID)]
		if stack == nil { // a thread that is not Python's, or is unknown
			idle := i > 0 && t.State != running && t.State != uninterruptible && !fileChannel().MatchString(t.WaitChannel)
			if idle || others == maxOthers {
				continue
			}
			others++
			stack = &clusterpb.ThreadStack{Name: oneLine(t.Name, maxName), Main: i == 0, NativeId: int32(t.ID)}
			s.Threads = append(s.Threads, stack)
		}
		stack.State, stack.WaitChannel, stack.CpuPercent = t.State, oneLine(t.WaitChannel, maxName), each[t.ID]
	}
}

// process returns the state of a process of a task.
func process(pid int, stat proc.Stat, main proc.Thread, percent float32) *clusterpb.ProcessState {
	return &clusterpb.ProcessState{
		Pid: int32(pid), Parent: int32(stat.Parent), Command: oneLine(proc.Command(pid), maxCommand), State: main.State,
		WaitChannel: oneLine(main.WaitChannel, maxName), CpuPercent: percent, RssBytes: stat.RSS,
		Threads: int32(stat.Threads),
	}
}

// usage is the use of the CPU by a task, between two readings.
type usage struct {
	first, last reading
	before      map[int]time.Duration // use by each thread of the task's process before the first reading
}

func newUsage(first, last reading) usage {
	u := usage{first, last, map[int]time.Duration{}}
	for _, t := range first.threads {
		u.before[t.ID] = t.CPU
	}
	return u
}

// percent returns a time of the CPU as a percentage of one core.
func (u usage) percent(used time.Duration) float32 {
	if d := u.last.at.Sub(u.first.at); d > 0 && used > 0 {
		return float32(100 * used.Seconds() / d.Seconds())
	}
	return 0
}

// ofThreads returns the percentage of each thread of the task's process, and their sum.
func (u usage) ofThreads() (each map[int]float32, sum float32) {
	each = map[int]float32{}
	for _, t := range u.last.threads {
		if before, ok := u.before[t.ID]; ok {
			each[t.ID] = u.percent(t.CPU - before)
			sum += each[t.ID]
		}
	}
	return each, sum
}

// ofProcess returns the percentage of another process, with its children that have ended.
func (u usage) ofProcess(pid int) float32 {
	before, ok := u.first.processes[pid]
	after, ok2 := u.last.processes[pid]
	if !ok || !ok2 || before.Started != after.Started {
		return 0
	}
	return u.percent(time.Duration((after.CPU - before.CPU) * float64(time.Second)))
}
