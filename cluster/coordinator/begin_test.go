package coordinator

import (
	"errors"
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// TestFollowCutOff: who follows a run that needs nobody, and that goes on after its driver
// died, hears of the one that follows it, not of a failure.
func TestFollowCutOff(t *testing.T) {
	t.Parallel()
	c := coordinate(t, false, func(cfg *Config) {
		cfg.Recovered.Saved, cfg.LastRun = []byte("null"), 1
		cfg.Begin = &clusterpb.StartRequest{Options: &clusterpb.RunOptions{MaxRestarts: 1}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}
		if err := os.MkdirAll(rundir.Dir(cfg.Dir, 1), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	heard, enough := make(chan int32, 1), errors.New("enough")
	stream := &sentUntil[clusterpb.RunUpdate]{sent[clusterpb.RunUpdate]{ctx: within(t)}, func(u *clusterpb.RunUpdate) error {
		if u.GetStatus() == nil {
			return nil
		}
		heard <- u.GetStatus().GetId()
		return enough
	}}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Control().(*control).Follow(&clusterpb.FollowRequest{Show: "all", Burst: 1}, stream)
	}()
	c.engine.answer <- nil
	c.up("0", 0)
	c.up("1", 0)
	if err := <-ended; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if id := <-heard; id != 2 {
		t.Errorf("it hears of run %d", id)
	}
}

// TestStatusYetToBegin: what a cluster's directory held before its run began, or begins
// again, is not shown as its run.
func TestStatusYetToBegin(t *testing.T) {
	t.Parallel()
	again := &clusterpb.StartRequest{Options: &clusterpb.RunOptions{MaxRestarts: 1}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}
	once := &clusterpb.StartRequest{Program: again.GetProgram()}
	for name, tt := range map[string]struct {
		saved   []byte
		earlier int32
		begin   *clusterpb.StartRequest
		want    int32 // the run that is shown
	}{
		"another cluster's":              {nil, 1, once, 0},
		"another's, after a driver died": {[]byte("null"), 1, again, 0},
		"its own, which begins again":    {[]byte("null"), 0, again, 0},
		"its own, which clients begin":   {[]byte("null"), 0, nil, 1},
	} {
		c := coordinate(t, false, func(cfg *Config) {
			cfg.Recovered.Saved, cfg.LastRun, cfg.Earlier, cfg.Begin = tt.saved, 1, tt.earlier, tt.begin
		})
		st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if st.GetRun().GetId() != tt.want || st.GetBeginsItself() != (tt.begin != nil) {
			t.Errorf("%s: the status shows %v", name, st.GetRun())
		}
	}
}

// TestBeginAfterClient: a run that a client begins in the moment of ready, before the
// cluster begins its own, is its run, and is not ended.
func TestBeginAfterClient(t *testing.T) {
	t.Parallel()
	own := &clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}
	for name, client := range map[string]func(*coordinated) error{
		"about to begin": func(c *coordinated) (err error) {
			c.do(func() { _, err = c.plan(own) })
			return err
		},
		"active": func(c *coordinated) error {
			_, err := c.begin(within(t), own)
			return err
		},
	} {
		c := coordinate(t, true)
		if err := client(c); err != nil {
			t.Fatal(err)
		}
		if !c.beginItself(within(t), own, 0) {
			t.Errorf("%s: it takes the run for none", name)
		}
		c.do(func() {
			if c.lc.State() != lifecycle.Ready || c.runs.unbegun != "" {
				t.Errorf("%s: the cluster is %s: %s", name, c.lc.State(), c.runs.unbegun)
			}
		})
	}
}

// sentUntil is a sent whose client goes when its function says so.
type sentUntil[T any] struct {
	sent[T]
	until func(*T) error
}

func (s *sentUntil[T]) Send(u *T) error { return s.until(u) }
