//go:build (cgo || verbs) && (amd64 || arm64)

package collective

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
	"github.com/tfcluster/tfcluster/rdma/verbs"
	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// openVerbs opens the device of this host, or the stub's.
func openVerbs(t testing.TB) *transport.Verbs {
	t.Helper()
	settings := transport.DefaultVerbs(os.Getenv(realDevice), 1, 1)
	if settings.Device == "" {
		settings.Device, settings.Library = "stub_0", verbstest.New(t).Path
	}
	v, err := transport.OpenVerbs(settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// TestByRDMA: calls of several hosts by RDMA, and what may happen to a rank in the middle. Nothing is parallel: the
// stub is one.
func TestByRDMA(t *testing.T) {
	for _, hosts := range layouts {
		if len(hosts) == 1 {
			continue
		}
		t.Run(fmt.Sprint("calls", hosts), func(t *testing.T) { testCalls(t, byRDMA, hosts) })
		t.Run(fmt.Sprint("last", hosts), func(t *testing.T) {
			for range 10 {
				testLast(t, byRDMA, hosts)
			}
		})
	}
	all := maps.Clone(faults)
	// the memory of a rank is deregistered: keys that its peers have are refused
	all["revoked"] = func(t *testing.T, m *member, _ *rand.Rand) {
		if m.local[0] != m.rank { // it has no peers by RDMA
			m.Close()
			return
		}
		for _, r := range m.regions {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	testFaults(t, all, byRDMA)
}

// TestUnanswered: where a rank's device does not acknowledge writes, the call ends with the rank's name.
func TestUnanswered(t *testing.T) {
	stub := verbstest.New(t)
	if os.Getenv(realDevice) != "" {
		t.Skip("a real device cannot be asked to fail")
	}
	all := groupsOver(t, byRDMA, 4096, []int{0}, []int{1})
	stub.FailNext(uint32(verbs.RetriesExceeded))
	errs := both(t, all, func(m *member) error {
		_, err := m.call(t.Context(), all, Call{Type: reduce.Int32, Size: 4096}, make([]byte, 4096))
		m.Close()
		return err
	})
	answered := 0
	for rank, err := range errs {
		lost, _ := errors.AsType[*LostError](err)
		if lost == nil || lost.Name != all[1-rank].name(1-rank) {
			t.Errorf("rank %d: %v", rank, err)
		} else if !strings.Contains(err.Error(), "the peer's device does not answer") {
			answered++
		}
	}
	if answered > 1 {
		t.Errorf("nobody says that a device does not answer: %v", errs)
	}
}

// TestExhausted: where a rank takes no messages any more, the credits of the rank before it are exhausted, and its
// call ends with the name of the other.
func TestExhausted(t *testing.T) {
	const size = 160 << 20 // in pieces: more than credits and queues have room for
	v := openVerbs(t)
	var ends [2]transport.Link
	var own [2]*memory.Mapping
	var work sync.WaitGroup
	for i, conn := range pair(t, "tcp") {
		s, err := memory.New("tfcluster-collective-test", Layout(size)...)
		if err != nil {
			t.Fatal(err)
		}
		if own[i], err = s.Map(); err != nil {
			t.Fatal(err)
		}
		region, err := v.Register(own[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { region.Close(); own[i].Close(); s.Close() })
		work.Go(func() {
			if ends[i], err = v.Connect(t.Context(), conn, region); err != nil {
				t.Error(err)
			}
		})
	}
	if work.Wait(); t.Failed() {
		return
	}
	t.Cleanup(func() { ends[1].Close() })
	g, err := New(Config{
		Names: []string{"worker:0", "worker:1"}, Hosts: [][]int{{0}, {1}}, Own: own[0],
		Peers: map[int]Peer{1: {Link: ends[0]}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	call := Call{Kind: Broadcast, Size: size}
	if err := ends[1].Write(t.Context(), transport.Place{Slot: controlSlot, Offset: description(1, 1)}, call.encode(),
		open.immediate(1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errors.New("3s have passed"))
	defer cancel()
	_, err = g.Run(ctx, call)
	if late, _ := errors.AsType[*LateError](err); late == nil || !slices.Equal(late.Waits, []string{"worker:1"}) {
		t.Error(err)
	}
}
