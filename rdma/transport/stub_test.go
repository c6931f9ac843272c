//go:build (cgo || verbs) && (amd64 || arm64)

package transport

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// realDevice names the variable with an RDMA device of this host for the suite. The guest of make test-rdma sets it.
const realDevice = "TFCLUSTER_TEST_RDMA"

// verbsWays returns the ways by RDMA: on the device if there is one, otherwise on the stub.
func verbsWays(t testing.TB) []way {
	w := way{name: "RDMA", listen: listenTCP, dial: func(a net.Addr) (net.Conn, error) {
		return net.DialTimeout(a.Network(), a.String(), longest)
	}}
	settings := DefaultVerbs(os.Getenv(realDevice), 1, 1)
	if settings.Device == "" {
		w.name = "RDMA stub"
		if errors.Is(verbstest.Missing(), verbstest.ErrNoCompiler) {
			w.missing = verbstest.ErrNoCompiler.Error()
			return []way{w}
		}
		_, settings = stubbed(t)
	}
	w.provider = openVerbs(t, settings)
	return []way{w}
}

// openVerbs opens the device for the duration of a test.
func openVerbs(t testing.TB, settings VerbsSettings) *Verbs {
	t.Helper()
	v, err := OpenVerbs(settings)
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
