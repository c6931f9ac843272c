package feed

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestClose: Close ends at once in every state of the peers, and leaves nothing behind.
func TestClose(t *testing.T) { // not parallel: it counts descriptors and goroutines
	rounds := func(n int) {
		for range n {
			t.Run("", func(t *testing.T) {
				b := newBed(t)
				b.begin(1)
				silent := b.dial()
				p, c := b.producer(0), b.program(true)
				p.put("ab")
				p.say(`{"op":"slot"}`)
				p.hear("slot")
				waiting := b.dial()
				waiting.say(`{"op":"produce","feed":1,"key":"secret"}`)
				await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
				c.say(`{"op":"next"}`)
				b.held("that the program waits", (*clusterpb.FeedHeld).GetStarving)
				ended := make(chan struct{})
				go func() { b.in.Close(); close(ended) }()
				for peer, op := range map[*peerConn]string{p: "stop", waiting: "stop", c: "over"} {
					// A source that is stopped has not failed: the end of the run has the reason.
					if m := peer.hear(op); (m.Reason == "") != (op == "stop") {
						t.Errorf("%+v", m)
					}
					peer.over()
				}
				silent.over()
				select {
				case <-ended:
				case <-time.After(patience):
					t.Fatal("Close does not end")
				}
			})
		}
	}
	rounds(1) // the runtime and gRPC keep some descriptors and goroutines
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	rounds(5)
	for deadline := time.Now().Add(patience); openFiles(t) > files ||
		runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors, before %d; %d goroutines, before %d", openFiles(t), files,
				runtime.NumGoroutine(), goroutines)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestOpenFails: after the failure to open the socket, no memory is left.
func TestOpenFails(t *testing.T) { // not parallel: it counts descriptors
	before := openFiles(t)
	for range 3 {
		if in, err := Open(context.Background(), Config{Task: "worker:0", Socket: "/proc/none/s"}); err == nil {
			in.Close()
			t.Fatal("the holder was opened")
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}
