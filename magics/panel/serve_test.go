package panel

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/magics/session"
)

// TestLease: a comm ends 45 s after the last message of a page, which pings every 10 s; pings are not answered.
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := session.NewState(t.Context(), session.Options{})
		defer s.Close()
		messages, answers := make(chan json.RawMessage), 0
		ended := make(chan time.Time, 1)
		go func() {
			(&Server{Session: s}).Serve(t.Context(), messages, func(any) { answers++ })
			ended <- time.Now()
		}()
		var last time.Time
		for range 60 {
			time.Sleep(10 * time.Second)
			messages <- json.RawMessage(`{"type":"ping"}`)
			last = time.Now()
		}
		if took := (<-ended).Sub(last); took != lease || answers != 0 {
			t.Errorf("it ends %s after the last message, with %d answers", took, answers)
		}
	})
}
