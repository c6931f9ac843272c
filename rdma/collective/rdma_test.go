//go:build (cgo || verbs) && (amd64 || arm64)

package collective

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
	"github.com/tfcluster/tfcluster/rdma/verbs"
	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// realDevice is the variable that has the tests use this host's RDMA device: the guest of make test-rdma sets it.
const realDevice = "TFCLUSTER_TEST_RDMA"

// openVerbs opens the device of this host, or the stub's.
func openVerbs(t testing.TB) *transport.Verbs {
	t.Helper()
	settings := transport.DefaultVerbs()
	if os.Getenv(realDevice) == "" {
		settings.Library = verbstest.New(t).Path
	}
	v, err := transport.OpenVerbs(settings, netip.MustParseAddr("127.0.0.1"))
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
