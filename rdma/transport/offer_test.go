package transport

import (
	"bytes"
	"testing"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// FuzzOffer: any bytes of a peer are either an error, or an offer that is the same again when it is encoded.
func FuzzOffer(f *testing.F) {
	f.Add(offer{
		queue: verbs.Peer{Queue: 17, Sequence: 5, LID: 1}, ethernet: true, mtu: 3, memory: window{1 << 40, 2},
		ring: window{3, 4},
	}.encode())
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
