package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// TestLastWords: the end waits for clients that are still to be told of it, for a while, and
// for nobody where there is none.
func TestLastWords(t *testing.T) {
	t.Parallel()
	shutdown, timeout := lifecycle.ShutdownRequested{Reason: "the test is over"}, lifecycle.TimerFired{Name: "reserve"}
	for name, tt := range map[string]struct {
		end         lifecycle.Event
		joined      bool
		reads, want time.Duration
	}{
		"nobody watches":                          {shutdown, true, 0, 0},
		"a client reads at once":                  {shutdown, true, 20 * time.Millisecond, 20 * time.Millisecond},
		"a client that does not read":             {shutdown, true, time.Hour, 100 * time.Millisecond},
		"who has yet to ask for the reservation":  {timeout, false, 0, 200 * time.Millisecond},
		"who waits for the reservation reads why": {timeout, false, 150 * time.Millisecond, 150 * time.Millisecond},
		"one that does not read why":              {timeout, false, time.Hour, 300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := coordinate(t, tt.joined)
			if !tt.joined {
				c.engine.answer <- nil
			}
			synctest.Wait()
			if tt.reads > 0 {
				_, leave := c.subs.watch()
				defer time.AfterFunc(tt.reads, func() {
					leave()
					if tt.end == timeout {
						c.post(c.failureSent)
					}
				}).Stop()
			}
			began := time.Now()
			c.post(func() { c.handle(tt.end) })
			<-c.done
			if took := time.Since(began); took != tt.want {
				t.Errorf("%s: the end takes %s, want %s", name, took, tt.want)
			}
		})
	}
}
