package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestRestart: when all tasks are restarted, the client receives "again", in any state of the feed. The next feed
// begins when every task of the new attempt waits for it.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, come := range map[string]func(c *fakeClient, hs []*fakeHolder, feed int64){
		"in the middle": func(*fakeClient, []*fakeHolder, int64) {},
		"a task has been killed": func(_ *fakeClient, hs []*fakeHolder, feed int64) {
			hs[1].say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: feed}}})
		},
		"every task has been killed": func(_ *fakeClient, hs []*fakeHolder, feed int64) {
			for _, h := range hs {
				h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: feed}}})
			}
		},
		"an executor is lost": func(_ *fakeClient, hs []*fakeHolder, feed int64) {
			hs[1].delivers(feed, 10)
			hs[1].end()
		},
		"everything has been read": func(c *fakeClient, hs []*fakeHolder, feed int64) {
			hs[0].delivers(feed, 10)
			hs[0].held(feed, 10, 10)
			c.fed(10)
			hs[0].over()
		},
	} {
		for _, mode := range []string{"train", "evaluate", "inference"} {
			t.Run(name+" of "+mode, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, "worker:0", "worker:1")
				hs := []*fakeHolder{b.attend("worker:0"), b.attend("worker:1")}
				request := &clusterpb.FeedRequest{Mode: mode, Epochs: 1}
				c := b.feeds(request)
				first := c.opened()
				for _, h := range hs {
					h.began()
					h.reads(first.GetFeed())
				}
				come(c, hs, first.GetFeed())
				for range 3 { // the restart of the run is seen later than the events of its tasks
					if u := c.hear(); u.GetOver() {
						t.Fatalf("the feed is over before the restart: %v", u)
					}
				}
				b.runs.restart()
				if u := c.over(); !u.GetAgain() || u.GetFailure() != nil {
					t.Fatalf("%v", u)
				}
				if notes, why := b.runs.told(); strings.Join(notes,
					"; ") != "the tasks were restarted: the feed begins again at the first record" || why != nil {
					t.Errorf("%q, %v", notes, why)
				}
				request.Again = true
				c = b.feeds(request)
				if u := c.hear(); u.GetWaiting() != "waiting for worker:0, worker:1 to call ctx.get_data_feed()" {
					t.Fatalf("%v", u)
				}
				for _, task := range []string{"worker:0", "worker:1"} {
					hs = append(hs, b.attends(task, 1))
				}
				again := c.opened()
				if begin := hs[2].began(); again.GetFeed() == first.GetFeed() || again.GetKey() == first.GetKey() ||
					begin.GetFeed() != again.GetFeed() {
					t.Errorf("%v, %v", again, begin)
				}
			})
		}
	}
}

// TestRestartRefused: if the tasks cannot be fed from the first record again, their run fails with the reason.
func TestRestartRefused(t *testing.T) {
	t.Parallel()
	alone := func(run *Run) { run.Tasks = []Task{run.Tasks[0], {Name: "worker:1", Attempt: 1000}} }
	for _, c := range []struct {
		once    bool
		restart func(*Run)
		want    string
	}{
		{true, func(run *Run) { run.Attempt++ }, "an iterator, which feeds them, cannot be read from the first record again"},
		{false, alone, "worker:1 was restarted alone"},
		{true, alone, "worker:1 was restarted alone"},
	} {
		b := newBed(t, "worker:0", "worker:1")
		b.attend("worker:0")
		b.attend("worker:1")
		client := b.feeds(&clusterpb.FeedRequest{Once: c.once})
		client.opened()
		b.runs.change(c.restart)
		if u := client.over(); u.GetAgain() || u.GetFailure() != nil {
			t.Errorf("%v", u)
		}
		if notes, why := b.runs.told(); len(notes) > 0 || !strings.Contains(why.GetSummary(), c.want) ||
			why.GetRemedy() == "" {
			t.Errorf("%q, %v; want %q", notes, why, c.want)
		}
	}
}

// TestRestartOfAServer: a task that reads no feed may be restarted alone.
func TestRestartOfAServer(t *testing.T) {
	t.Parallel()
	b := newBed(t, "chief:0")
	b.attend("chief:0")
	c := b.feeds(&clusterpb.FeedRequest{})
	c.opened()
	for _, tasks := range [][]Task{{{Name: "chief:0"}, {Name: "worker:1", Attempt: 1000}}, {{Name: "chief:0"}}} {
		b.runs.change(func(run *Run) { run.Tasks = tasks })
		for range 3 {
			if u := c.hear(); u.GetOver() {
				t.Fatalf("%v", u)
			}
		}
	}
}

// TestRunOverBeforeAgain: if a run ends before its feed begins again, the run has the reason, not the feed.
func TestRunOverBeforeAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	c := b.feeds(&clusterpb.FeedRequest{Again: true})
	c.hear()
	b.runs.end("run 1 has ended: it failed")
	if u := c.over(); u.GetFailure() != nil || u.GetAgain() {
		t.Errorf("%v", u)
	}
}

// TestEntering: the time limit for the tasks to ask for a feed begins when all tasks are in their program.
func TestEntering(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	b.d.patience.ask = 3 * look
	b.runs.change(func(run *Run) { run.ID = 0 })
	c := b.feeds(&clusterpb.FeedRequest{})
	if u := c.hear(); u.GetWaiting() != "waiting for the run to start" {
		t.Errorf("%v", u)
	}
	b.runs.change(func(run *Run) { run.ID, run.Entering = 1, true })
	if u := c.hear(); u.GetWaiting() != "waiting for worker:0 to call ctx.get_data_feed()" {
		t.Errorf("%v", u)
	}
	time.Sleep(b.d.patience.ask + look)
	var begin time.Time // when the driver last saw tasks outside of their program
	b.runs.change(func(run *Run) { run.Entering, begin = false, b.runs.asked })
	if f := c.over().GetFailure(); !strings.Contains(f.GetSummary(), "none of the tasks of run 1 has called") ||
		time.Since(begin) < b.d.patience.ask {
		t.Errorf("after %s: %v", time.Since(begin), f)
	}
}

// TestTasksThatReadNothing: a feed does not wait for tasks that have ended; a feed without a task that can read it is
// refused at once.
func TestTasksThatReadNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, "chief:0", "worker:0")
	b.runs.change(func(run *Run) { run.Ended = map[string]bool{"worker:0": true} })
	b.attend("chief:0")
	if got := names(b.feeds(&clusterpb.FeedRequest{}).opened()); len(got) != 1 || got[0] != "chief:0" {
		t.Errorf("%v", got)
	}
	for _, tasks := range [][]Task{nil, {{Name: "worker:0"}}} { // in tf.distribute.Server.join(); ended
		b := newBed(t)
		b.runs.change(func(run *Run) { run.Tasks, run.Ended = tasks, map[string]bool{"worker:0": true} })
		begin := time.Now()
		f := b.feeds(&clusterpb.FeedRequest{}).over().GetFailure()
		if !strings.Contains(f.GetSummary(), "no task of run 1 reads it") || f.GetRemedy() == "" ||
			time.Since(begin) > longest/2 {
			t.Errorf("%v", f)
		}
	}
}
