package coordinator

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/tfcluster/tfcluster/cluster"
)

// lister is an allocation that knows other hosts.
type lister struct {
	cluster.Allocation
	others []string
}

func (l lister) OtherHosts(context.Context, string) ([]string, error) { return l.others, nil }

// TestSharedHost: tasks that share a host although others have room are noted, unless it was asked for.
func TestSharedHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		hosts  [2]string
		others []string
		pack   bool
		want   string
	}{
		{"spread", [2]string{"a", "b"}, []string{"c"}, false, ""},
		{"no other host", [2]string{"a", "a"}, nil, false, ""},
		{"asked for", [2]string{"a", "a"}, []string{"b"}, true, ""},
		{
			"shared",
			[2]string{"a", "a"},
			[]string{"b", "c", "d", "e"},
			false,
			"all 2 tasks are on a, although the engine has room on b, c, d and 1 more: %tfcluster reset --hard spreads them; " +
				"reserve --pack keeps them together, where tfcluster.collective goes through shared memory",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := coordinate(t, true, func(cfg *Config) { cfg.Request.Pack = tt.pack })
				synctest.Wait()
				c.do(func() {
					for i, x := range c.lc.Executors() {
						x.Host = tt.hosts[i]
					}
					engine := c.reserved.alloc
					c.reserved.alloc = lister{engine, tt.others}
					c.noteSharedHost()
					c.reserved.alloc = engine
				})
				synctest.Wait()
				got := ""
				c.do(func() {
					for _, n := range c.notes.since(0) {
						got += n.GetText()
					}
				})
				if got != tt.want {
					t.Errorf("noted: %q, want %q", got, tt.want)
				}
			})
		})
	}
}
