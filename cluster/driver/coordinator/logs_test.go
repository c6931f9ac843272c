package coordinator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestSlowReaderLosesNothing: lines that come while a client of logs -f takes nothing in are read from the store
// later. Nobody else waits for it.
func TestSlowReaderLosesNothing(t *testing.T) {
	t.Parallel()
	const each = 3*readAtOnce + followBuffer + 7
	c := coordinate(t, true)
	rec := newRecord(&clusterpb.RunStatus{Id: 1, Dir: c.cfg.Dir, State: "running"})
	c.do(func() { c.runs.records = append(c.runs.records, rec) })
	begun, all := make(chan struct{}), make(chan struct{})
	next := map[string]uint64{}
	over, count := false, 0
	stream := &sentUntil[clusterpb.LinesReply]{
		sent[clusterpb.LinesReply]{ctx: within(t)}, func(u *clusterpb.LinesReply) error {
			if u.GetKeptSent() {
				close(begun)
				return nil
			}
			if len(u.GetLines()) > 0 {
				<-all
			}
			if u.GetGap() != "" || over {
				return fmt.Errorf("it is sent %v; over %v", u, over)
			}
			for _, l := range u.GetLines() {
				if l.GetSeq() != next[l.GetTask()] || l.GetText() != fmt.Sprint("line ", l.GetSeq()) {
					return fmt.Errorf("after %v came %v", next, l)
				}
				next[l.GetTask()]++
				count++
			}
			over = u.GetOver()
			return nil
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Control().(*control).Logs(&clusterpb.LogsRequest{Run: 1, Follow: true}, stream) }()
	<-begun
	for from := 0; from < each; from += 1000 {
		for i := range 2 {
			b := &clusterpb.LogBatch{Run: 1, Task: fmt.Sprint("worker:", i), Attempt: 1, First: uint64(from)}
			for n := from; n < min(from+1000, each); n++ {
				b.Lines = append(b.Lines, &clusterpb.Line{UnixNano: int64(n), Text: fmt.Sprint("line ", n)})
			}
			c.store.Append(b)
		}
	}
	c.do(func() { rec.over = time.Now() })
	close(all)
	if err := <-ended; err != nil || !over || count != 2*each {
		t.Errorf("it ends with %v, over %v, after %d lines, want %d", err, over, count, 2*each)
	}
	var empty *follower
	c.do(func() {
		for f := range c.subs.followers {
			empty = f
		}
	})
	if empty != nil {
		t.Errorf("a follower is left: %v", empty)
	}
}

// TestCancelledLogsAreNotOver: a stream that ends before its run does not say that the run is over.
func TestCancelledLogsAreNotOver(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.do(func() {
		c.runs.records = append(c.runs.records, newRecord(&clusterpb.RunStatus{Id: 1, Dir: c.cfg.Dir, State: "running"}))
	})
	ctx, cancel := context.WithCancel(within(t))
	over := false
	stream := &sent[clusterpb.LinesReply]{ctx: ctx, every: func(u *clusterpb.LinesReply) {
		over = over || u.GetOver()
		if u.GetKeptSent() {
			cancel()
		}
	}}
	if err := c.Control().(*control).Logs(&clusterpb.LogsRequest{Run: 1, Follow: true}, stream); err == nil || over {
		t.Errorf("a stream that was cancelled ends with %v, over %v", err, over)
	}
}
