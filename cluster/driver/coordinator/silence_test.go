package coordinator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// TestSilence: an agent that is silent for the heartbeat timeout is lost, whether its connection has broken or not; one
// that speaks again before it is not, and messages that waited because the driver was stopped are no silence.
func TestSilence(t *testing.T) {
	t.Parallel()
	const timeout = 20 * time.Second
	for _, tt := range []struct {
		name string
		do   func(c *coordinated)
		lost string
	}{
		{
			"no message", func(c *coordinated) { c.silence(); time.Sleep(timeout + 2*time.Second) },
			"was lost: silent for 20 s: its host is down or cut off",
		},
		{"no message for a shorter time", func(c *coordinated) {
			c.silence()
			time.Sleep(timeout - 4*time.Second)
			c.do(func() { c.mute = false })
			time.Sleep(timeout)
		}, ""},
		{"a broken connection", func(c *coordinated) {
			c.silence()
			time.Sleep(10 * time.Second)
			c.do(func() {
				for _, id := range []string{"0", "1"} {
					c.agentLeft(c.execs.agents[cluster.ExecutorID(id)], id+"0")
				}
			})
			time.Sleep(timeout - 8*time.Second)
		}, "was lost: silent for 20 s: its host is down or cut off"},
		{"the driver was stopped", func(c *coordinated) { c.do(func() { time.Sleep(time.Hour) }); time.Sleep(timeout) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := coordinate(t, true, func(cfg *Config) { cfg.Request.HeartbeatTimeoutMillis = timeout.Milliseconds() })
				synctest.Wait()
				time.Sleep(2500 * time.Millisecond) // between two heartbeats
				tt.do(c)
				var notes []string
				var states []lifecycle.ExecutorState
				c.do(func() {
					for _, n := range c.notes.since(0) {
						notes = append(notes, n.GetText())
					}
					for _, x := range c.lc.Executors() {
						states = append(states, x.State)
					}
				})
				text := strings.Join(notes, "\n")
				if got := strings.Count(text, tt.lost); tt.lost != "" && got != 2 || tt.lost == "" && text != "" {
					t.Errorf("the notes are %q, the states %v; want twice %q", text, states, tt.lost)
				}
			})
		})
	}
}

// TestOrphanGrace: tasks wait longer for their driver than the driver for their agents.
func TestOrphanGrace(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{
		5 * time.Second: time.Minute, 30 * time.Second: time.Minute, time.Minute: 90 * time.Second,
	} {
		if got := orphanGrace(timeout); got != want {
			t.Errorf("with a heartbeat timeout of %s tasks wait for %s, want %s", timeout, got, want)
		}
	}
}
