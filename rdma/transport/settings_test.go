package transport

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// TestParseVerbs: settings of a site, and words that are none.
func TestParseVerbs(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"TFCLUSTER_RDMA_DEVICE": "mlx5_1:2", "TFCLUSTER_RDMA_GID": "3", "TFCLUSTER_RDMA_TIMEOUT": "20", "TFCLUSTER_RDMA_RETRIES": "0",
		"TFCLUSTER_RDMA_TRAFFIC_CLASS": "104", "TFCLUSTER_RDMA_SERVICE_LEVEL": "3", "TFCLUSTER_RDMA_SPIN": "1ms", "TFCLUSTER_RDMA_LIBRARY": "/x/libibverbs.so.1",
	}
	got, err := ParseVerbs(func(name string) string { return all[name] })
	want := VerbsSettings{"/x/libibverbs.so.1", "mlx5_1:2", 3, 20, 0, 104, 3, time.Millisecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseVerbs(func(string) string { return "" }); err != nil || got != DefaultVerbs() {
		t.Errorf("without settings: %+v, %v", got, err)
	}
	for name, values := range map[string][]string{
		"TFCLUSTER_RDMA_DEVICE": {"mlx5_0:0", "mlx5_0:x", "mlx5_0:256"}, "TFCLUSTER_RDMA_GID": {"-1", "x", "256"}, "TFCLUSTER_RDMA_TIMEOUT": {"32"},
		"TFCLUSTER_RDMA_RETRIES": {"8"}, "TFCLUSTER_RDMA_SPIN": {"5", "-1s", "2s"},
	} {
		for _, value := range values {
			_, err := ParseVerbs(func(n string) string {
				if n == name {
					return value
				}
				return ""
			})
			if err == nil || !strings.HasPrefix(err.Error(), name+" is ") {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
}

// TestRankGID: the address by which the others know the host comes first, RoCE v1 last.
func TestRankGID(t *testing.T) {
	t.Parallel()
	local := netip.MustParseAddr("10.0.0.1")
	gid := func(address string) verbs.GID { return netip.MustParseAddr(address).As16() }
	last := 7
	for _, c := range []struct {
		ethernet bool
		gid      verbs.GID
		kind     string
	}{
		{true, gid("10.0.0.1"), "RoCE v2"},
		{true, gid("192.168.0.1"), "RoCE v2"},
		{false, gid("fe80::1"), "IB/RoCE v1"},
		{true, gid("2001:db8::1"), "RoCE v2"},
		{true, gid("fe80::1"), "RoCE v2"},
		{true, gid("10.0.0.1"), "IB/RoCE v1"},
	} {
		n := rankGID(c.ethernet, c.gid, c.kind, local)
		if n >= last || n < 1 {
			t.Errorf("%+v has %d, the one before %d", c, n, last)
		}
		last = n
	}
	if rankGID(true, gid("10.0.0.1"), "", local) != rankGID(true, gid("10.0.0.1"), "RoCE v2", local) {
		t.Error("a GID whose type cannot be read is not used")
	}
}

// FuzzOffer: whatever a peer sends is an offer, and the same again when it is encoded, or an error.
func FuzzOffer(f *testing.F) {
	f.Add(offer{queue: verbs.Peer{Queue: 17, Sequence: 5, LID: 1}, ethernet: true, mtu: 3, memory: window{1 << 40, 2}, ring: window{3, 4}}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOffer(b)
		if err != nil {
			return
		}
		if again, err := parseOffer(o.encode()); err != nil || again != o {
			t.Errorf("%+v is %+v when encoded, %v", o, again, err)
		}
		if len(o.encode()) != len(b) || b[26] <= 1 && !bytes.Equal(o.encode(), b) {
			t.Errorf("%x is encoded as %x", b, o.encode())
		}
	})
}
