package coordinator

import (
	"testing"
	"time"
)

// TestSpoke: an agent whose connection breaks was there a moment ago, unless a silence
// went before: the network's, or the driver's own.
func TestSpoke(t *testing.T) {
	t.Parallel()
	const usual, pause = 3 * time.Second, 10 * time.Second
	for _, c := range []struct {
		name  string
		heard []time.Duration // when, from the join on
		left  time.Duration
		want  bool
	}{
		{"an agent that is killed", []time.Duration{time.Second, 2 * time.Second}, 2500 * time.Millisecond, true},
		{"killed at once", nil, time.Second, true},
		{"a network that fails", []time.Duration{time.Second}, 16 * time.Second, false},
		{
			"a driver that was stopped", []time.Duration{time.Second, 21 * time.Second, 21 * time.Second}, 21 *
				time.Second, false,
		},
		{"killed long after that", []time.Duration{
			20 * time.Second, 22 * time.Second, 24 * time.Second, 26 * time.Second, 28 * time.Second, 30*time.Second + 1,
		}, 31 * time.Second, true},
	} {
		a := newAgentConn("0")
		joined := a.heard
		for _, at := range c.heard {
			a.hear(joined.Add(at), usual)
		}
		if got := a.spoke(joined.Add(c.left), usual, pause); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
