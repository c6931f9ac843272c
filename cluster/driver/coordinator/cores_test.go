package coordinator

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestTooFewCores: a reservation is ready with a warning where a host has more tasks than cores.
func TestTooFewCores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		roles []*clusterpb.Role
		cores int32
		want  string
	}{
		{
			"too few", []*clusterpb.Role{{Name: cluster.Worker, Count: 3}}, 2, "3 tasks run on vm, which has fewer cores (2): " +
				"they take turns, so steps take longer",
		},
		{"enough", []*clusterpb.Role{{Name: cluster.Worker, Count: 2}}, 2, ""},
		{"not known", []*clusterpb.Role{{Name: cluster.Worker, Count: 3}}, 0, ""},
		{"the rest are parameter servers", []*clusterpb.Role{
			{Name: cluster.Worker, Count: 2}, {Name: cluster.PS, Count: 1},
		}, 2, ""},
	} {
		c := coordinate(t, false, func(cfg *Config) { cfg.Request.Roles = tt.roles })
		c.engine.answer <- nil
		for i := range cluster.Tasks(tt.roles) {
			id := cluster.ExecutorID(string(rune('0' + i)))
			conn := newAgentConn(id)
			c.do(func() {
				c.join(conn, &clusterpb.Hello{
					Protocol: clusterpb.Protocol, ExecutorId: string(id), Incarnation: string(id), Host: "vm", Warmed: true,
					Cpus: tt.cores,
				})
			})
		}
		got := ""
		c.do(func() {
			for _, n := range c.notes.since(0) {
				if n.GetWarning() {
					got += n.GetText()
				}
			}
		})
		if got != tt.want {
			t.Errorf("%s: warned %q, want %q", tt.name, got, tt.want)
		}
	}
}
