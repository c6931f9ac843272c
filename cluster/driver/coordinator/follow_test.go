package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
)

// TestFollowCatchesUp: what a client is sent that comes late to a flood, by how it follows.
func TestFollowCatchesUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		req  *clusterpb.FollowRequest
		want string
	}{
		{
			"from the start", &clusterpb.FollowRequest{FromStart: true, Burst: 3}, "[worker:0] line 0 [worker:0] line 1 " +
				"[worker:0] line 2 (9994) [worker:1] line 9997 [worker:1] line 9998 [worker:1] line 9999",
		},
		{
			"from the start, one task's", &clusterpb.FollowRequest{FromStart: true, Burst: 3, Show: "worker:0"},
			"[worker:0] line 0 [worker:0] line 1 [worker:0] line 2 (4994) [worker:0] line 4997 [worker:0] line 4998 " +
				"[worker:0] line 4999",
		},
		{
			"from the start, in few bytes", &clusterpb.FollowRequest{FromStart: true, BurstBytes: 100, LineBytes: 4},
			"[worker:0] line+2 (9998) [worker:1] line+5",
		},
		{
			"all from the start", &clusterpb.FollowRequest{FromStart: true, Burst: 100_000},
			"[worker:0] line 0 [worker:0] line 1 … [worker:1] line 9999",
		},
		{
			"since the last cell", &clusterpb.FollowRequest{},
			"9980 before: [worker:1] line 9980 [worker:1] line 9981 … [worker:1] line 9999",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := coordinate(t, true)
			for i := range 2 {
				b := &clusterpb.LogBatch{Run: 1, Task: fmt.Sprint("worker:", i), Attempt: 1}
				b.Lines = append(b.Lines, &clusterpb.Line{Text: "1/3", Carriage: true}) // overwritten, and not counted
				for n := 5000 * i; n < 5000*(i+1); n++ {
					b.Lines = append(b.Lines, &clusterpb.Line{UnixNano: int64(n), Text: fmt.Sprint("line ", n)})
				}
				c.store.Append(b)
			}
			c.do(func() {
				rec := newRecord(&clusterpb.RunStatus{Id: 1, Dir: c.cfg.Dir})
				rec.over = time.Now()
				c.runs.records = append(c.runs.records, rec)
			})
			var got []string
			known := false // a cell shows the run above its lines
			stream := &sent[clusterpb.RunUpdate]{ctx: within(t), every: func(u *clusterpb.RunUpdate) {
				known = known || u.GetStatus().GetId() == 1
				if u.GetLines() != nil && !known {
					t.Errorf("lines are sent before the run's status")
				}
				if l := u.GetLines(); l.GetBefore() > 0 {
					got = append(got, fmt.Sprintf("%d before: %s", l.GetBefore(), shownLines(l)))
				} else if l != nil {
					got = append(got, shownLines(l))
				}
			}}
			if err := c.Control().(*control).Follow(tt.req, stream); err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(got, "|"); text != tt.want {
				t.Errorf("it is sent\n%s, not\n%s", text, tt.want)
			}
		})
	}
}

// TestLogsShowsGapsInTheirPlace: as messages of their own between the lines, which clients
// of other versions show too.
func TestLogsShowsGapsInTheirPlace(t *testing.T) {
	t.Parallel()
	var lines []*clusterpb.Line
	for i := range linesAtOnce + 3 {
		lines = append(lines, &clusterpb.Line{Task: "worker:0", Text: fmt.Sprint("line ", i)})
	}
	gaps := []logstore.Gap{
		{Task: "worker:0", Lines: 7, Why: "quota"},
		{Task: "worker:0", Lines: 2, From: atSecond(0), To: atSecond(1), Why: "no space", Before: 2},
		{Task: "worker:1", Lines: 1, From: atSecond(0), To: atSecond(0), Why: "no space", Before: 2},
		{Task: "worker:0", Lines: 1, From: atSecond(5), To: atSecond(5), Why: "no space", Before: len(lines)},
	}
	var got []string
	stream := &sent[clusterpb.LinesReply]{
		every: func(u *clusterpb.LinesReply) { got = append(got, fmt.Sprintf("%s|%d", u.GetGap(), len(u.GetLines()))) },
	}
	if err := sendLines(stream, lines, gaps); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"worker:0: the oldest 7 lines are gone (quota)|2",
		"worker:0: 2 lines were not kept: no space, 03:04:05 to 03:04:06; worker:1: 1 line was not kept: no space, " +
			"03:04:05|5000", "|1",
		"worker:0: 1 line was not kept: no space, 03:04:10|0",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it sends\n%s", strings.Join(got, "\n"))
	}
}

// shownLines is what a cell shows, in short: of many lines the first two and the last.
func shownLines(l *clusterpb.Lines) string {
	var b strings.Builder
	part := func(lines []*clusterpb.Line) {
		for i, l := range lines {
			switch {
			case len(lines) <= 6 || i < 2 || i == len(lines)-1:
				fmt.Fprintf(&b, "[%s] %s", l.GetTask(), l.GetText())
				if l.GetLeftOut() > 0 {
					fmt.Fprintf(&b, "+%d", l.GetLeftOut())
				}
				b.WriteByte(' ')
			case i == 2:
				b.WriteString("… ")
			}
		}
	}
	part(l.GetHead())
	if l.GetSkipped() > 0 {
		fmt.Fprintf(&b, "(%d) ", l.GetSkipped())
	}
	part(l.GetTail())
	return strings.TrimSpace(b.String())
}

func atSecond(n int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local).Add(time.Duration(n) * time.Second)
}

// TestLogsContinue: logs -f that continues after a number of each task's lines loses and repeats none,
// whatever their times; of another run it sends all.
func TestLogsContinue(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.do(func() {
		rec := newRecord(&clusterpb.RunStatus{Id: 1, Dir: c.cfg.Dir})
		rec.over = time.Now()
		c.runs.records = append(c.runs.records, rec)
	})
	for i, task := range []string{"worker:0", "worker:1"} {
		b := &clusterpb.LogBatch{Run: 1, Task: task, Attempt: 1}
		for n := range 3 {
			b.Lines = append(b.Lines, &clusterpb.Line{UnixNano: int64(10 - 5*i), Text: fmt.Sprint(task, " ", n)})
		}
		c.store.Append(b)
	}
	for run, want := range map[int32]string{
		1: "[worker:1 2 worker:0 1 worker:0 2]", 7: "[worker:1 0 worker:1 1 worker:1 2 worker:0 0 worker:0 1 worker:0 2]",
	} {
		var got []string
		var last *clusterpb.LinesReply
		stream := &sent[clusterpb.LinesReply]{ctx: within(t), every: func(u *clusterpb.LinesReply) {
			for _, l := range u.GetLines() {
				got = append(got, l.GetText())
			}
			if u.GetKeptSent() {
				last = u
			}
		}}
		if err := c.Control().(*control).Logs(&clusterpb.LogsRequest{
			Follow: true, AfterRun: run, After: map[string]uint64{"worker:0": 1, "worker:1": 2},
		}, stream); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != want || last.GetRun() != 1 || last.GetPosition()["worker:0"] != 3 ||
			last.GetPosition()["worker:1"] != 3 {
			t.Errorf("after lines of run %d came %v, and %v", run, got, last)
		}
	}
}

// TestLogsFollowSendsLastLinesAsTheyCome: after the end of a run, logs -f sends each line when
// it comes, not all of them when the last one has come: they may be more than the driver holds.
func TestLogsFollowSendsLastLinesAsTheyCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRunning(t, 0)
		came, ended := make(chan string, 8), make(chan error, 1)
		stream := &sent[clusterpb.LinesReply]{ctx: within(t), every: func(u *clusterpb.LinesReply) {
			for _, l := range u.GetLines() {
				came <- l.GetText()
			}
		}}
		go func() { ended <- r.Control().(*control).Logs(&clusterpb.LogsRequest{Run: 1, Follow: true}, stream) }()
		next := func(want string) {
			t.Helper()
			select {
			case got := <-came:
				if got != want {
					t.Errorf("it sent %q, not %q", got, want)
				}
			case <-time.After(deadline):
				t.Fatalf("%q was not sent", want)
			}
		}
		r.wrote(1, 1, 0, false, "first")
		next("first")
		r.exited(0, 1, &clusterpb.Exited{})
		r.exited(1, 1, &clusterpb.Exited{Lines: 4})
		for i, text := range []string{"second", "third"} {
			time.Sleep(delay / 4) // it waits for the last lines by now
			asked := time.Now()
			r.wrote(1, 1, i+1, false, text)
			next(text)
			if d := time.Since(asked); d > linesQuiet/2 {
				t.Errorf("%q was held back for %s", text, d)
			}
		}
		r.wrote(1, 1, 3, false, "last")
		next("last")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
