//go:build (cgo || verbs) && (amd64 || arm64)

package transport

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// realDevice is the variable that has the suite use this host's RDMA device: the guest of make test-rdma sets it.
const realDevice = "TFCLUSTER_TEST_RDMA"

// verbsWays are the ways by RDMA: on the stub or, where there is a device, on that.
func verbsWays(t testing.TB) []way {
	w := way{name: "RDMA", listen: listenTCP, dial: func(a net.Addr) (net.Conn, error) { return net.DialTimeout(a.Network(), a.String(), longest) }}
	settings := DefaultVerbs()
	if os.Getenv(realDevice) == "" {
		w.name = "RDMA stub"
		if errors.Is(verbstest.Missing(), verbstest.ErrNoCompiler) {
			w.missing = verbstest.ErrNoCompiler.Error()
			return []way{w}
		}
		settings.Library = verbstest.New(t).Path
	}
	w.provider = openVerbs(t, settings)
	return []way{w}
}

// openVerbs opens the device for the time of a test.
func openVerbs(t testing.TB, settings VerbsSettings) *Verbs {
	t.Helper()
	v, err := OpenVerbs(settings, netip.MustParseAddr("127.0.0.1"))
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
