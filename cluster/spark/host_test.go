package spark

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// peers are a host's two ends, with what the driver's hears.
func peers(t testing.TB) (*host, net.Conn, chan hostEvent) {
	t.Helper()
	ours, theirs := net.Pipe()
	events := make(chan hostEvent, 16)
	h := newHost(ours, events)
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
		<-h.gone
	})
	return h, theirs, events
}

// TestCalls: answers come in any order, between events.
func TestCalls(t *testing.T) {
	t.Parallel()
	h, theirs, events := peers(t)
	go func() { // ends with the connection
		var ids []int
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
			var call struct{ ID int }
			if json.Unmarshal(lines.Bytes(), &call) != nil {
				return
			}
			if ids = append(ids, call.ID); len(ids) == 2 {
				fmt.Fprintf(theirs, `{"event":"pending","executors":["0"],"why":"full"}`+"\n"+`{"id":%d,"value":[%d]}`+"\n"+
					`{"id":%d,"error":"no room"}`+"\n", ids[1], ids[1], ids[0])
			}
		}
	}()
	errs := make(chan error, 2)
	var value []int
	go func() { errs <- h.call(t.Context(), "first", nil, nil) }()
	time.Sleep(10 * time.Millisecond) // which is first does not matter
	go func() { errs <- h.call(t.Context(), "second", nil, &value) }()
	var failed []string
	for range 2 {
		if err := <-errs; err != nil {
			failed = append(failed, err.Error())
		}
	}
	if len(failed) != 1 || failed[0] != "no room" {
		t.Errorf("failures are %q", failed)
	}
	if e := <-events; e.Event != "pending" || e.Why != "full" {
		t.Errorf("the event is %+v", e)
	}
}

// TestCallEnds: a call ends with its context and with the connection.
func TestCallEnds(t *testing.T) {
	t.Parallel()
	h, theirs, _ := peers(t)
	go func() { // reads until the connection ends
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := h.call(ctx, "launch", map[string]any{"name": "c"}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that is not answered: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- h.call(t.Context(), "launch", nil, nil) }()
	theirs.Close()
	if err := <-done; !errors.Is(err, errHostGone) {
		t.Errorf("a call whose host went: %v", err)
	}
}

// TestHostThatHangs: a host that reads nothing is hung up on.
func TestHostThatHangs(t *testing.T) {
	t.Parallel()
	h, _, _ := peers(t)
	for range 2 {
		if err := h.call(context.Background(), "stop", nil, nil); !errors.Is(err, errHostGone) {
			t.Errorf("a call that is not read: %v", err)
		}
	}
	<-h.gone
}

// FuzzHost: whatever a peer writes, the driver's end reads it or hangs up.
func FuzzHost(f *testing.F) {
	for _, s := range []string{
		`{"event":"hello","version":"4.0"}`, `{"id":1,"value":{}}`, `{"id":1,"error":"x"}`, "{", "null\n[]",
		strings.Repeat("[", 1000),
	} {
		f.Add([]byte(s + "\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		events := make(chan hostEvent)
		h := newHost(ours, events)
		go func() {
			_, _ = theirs.Write(data) // it may hang up before the end
			theirs.Close()
		}()
		for {
			select {
			case <-events:
			case <-h.gone:
				return
			}
		}
	})
}
