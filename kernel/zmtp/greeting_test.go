package zmtp_test

import (
	"io"
	"testing"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// Ensure a peer that waits for the whole greeting before it tells its mechanism gets it: else both would wait.
func TestPeerThatWaitsForGreeting(t *testing.T) {
	t.Parallel()
	for mechanism, keys := range map[string]*zmtp.CurveKeys{"NULL": nil, "CURVE": testKeys(t)} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			var why reasons
			r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{Curve: keys, Refused: why.add})
			nc := raw(t, r.Addr())
			g := make([]byte, 64)
			g[0], g[9], g[10], g[11] = 0xFF, 0x7F, 3, 1
			copy(g[12:], "NULL")
			if _, err := nc.Write(g[:12]); err != nil {
				t.Fatal(err)
			}
			theirs := make([]byte, 64)
			if n, err := io.ReadFull(nc, theirs); err != nil ||
				string(theirs[12:32]) != mechanism+string(make([]byte, 20-len(mechanism))) {
				t.Fatalf("a greeting of %d bytes: %q %v", n, theirs[:n], err)
			}
			if keys != nil { // it may leave; if it does not, it is refused
				if _, err := nc.Write(g[12:]); err != nil {
					t.Fatal(err)
				}
				why.await(t, `does not encrypt (mechanism "NULL")`)
				return
			}
			ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
			if _, err := nc.Write(append(g[12:], "\x04"+string(rune(len(ready)))+ready+"\x00\x02hi"...)); err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 2)
			if _, err := io.ReadFull(nc, head); err != nil || head[0] != 4 {
				t.Fatalf("READY begins with %q %v", head, err)
			}
			answer := make([]byte, int(head[1])+4)
			if _, err := io.ReadFull(nc, answer); err != nil || string(answer[head[1]:]) != "\x00\x02hi" {
				t.Errorf("the echo is %q %v", answer, err)
			}
		})
	}
}
