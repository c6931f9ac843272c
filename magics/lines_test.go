package magics

import (
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/logstore"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestLogsOfLongLines: a cell gets the start of a long line and how to see it whole, a
// shell the line.
func TestLogsOfLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	lines := []*clusterpb.Line{{Task: "worker:1", Text: long, Continues: true}, {Task: "worker:1", Text: long}, {Task: "worker:1", Text: "next"}}
	for _, shell := range []bool{false, true} {
		drivers := newFakeDrivers(t)
		drivers.prep = func(f *fakeCluster) { f.lines = lines }
		s := NewSession(t.Context(), session.Options{Engines: engines(), Connector: drivers, Shell: shell, Python: "python3", WorkingDir: "/work/dir", Client: "test"})
		t.Cleanup(s.Close)
		if _, err := s.Launch(t.Context(), &clusterpb.ReserveRequest{Name: "here"}); err != nil {
			t.Fatal(err)
		}
		out := newRecord()
		if _, err := s.RunArgv(t.Context(), []string{"logs", "-c", "here", "--run", "3"}, out, nil); err != nil {
			t.Fatal(err)
		}
		text := out.settle()
		want := "out| [worker:1] " + long[:4<<10] + "… 2.0 MiB more: tfcluster logs -c here --run 3 --task worker:1\nout| [worker:1] next\n"
		if shell {
			want = "out| [worker:1] " + long + "\nout| [worker:1] " + long + "\nout| [worker:1] next\n"
		}
		if text != want {
			t.Errorf("shell %v: %d bytes, from %.100q to %q", shell, len(text), text, text[max(0, len(text)-100):])
		}
	}
}

// TestPrinterGaps: what is missing stands in its place, and not on a progress bar's line.
func TestPrinterGaps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 12, 3, 0, time.Local)
	out := newRecord()
	p := render.NewPrinter(out, nil, 0)
	p.WithGaps([]*clusterpb.Line{{Task: "worker:0", Text: "1/3", Carriage: true}, {Task: "worker:0", Text: "behind"}}, []logstore.Gap{
		{Task: "worker:0", Lines: 123, From: at, To: at.Add(5 * time.Second), Why: "no space left on device", Before: 1},
	})
	p.Close()
	want := "out| [worker:0] 1/3\r\nout| … worker:0: 123 lines were not kept: no space left on device, 15:12:03 to 15:12:08\nout| [worker:0] behind\n"
	if got := out.settle(); got != want {
		t.Errorf("it shows\n%q", got)
	}
}
