package zmtp_test

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// A key pair for tests only, of zmq.curve_keypair().
const (
	testPublic = "KWFLfM)U>^DGp86rF8(!^njW9@GK+S=0B/*QvEbl"
	testSecret = "@!5-SYROHDzJle7KCZT[@{7FUun@94>1Y=sWgq#2"
)

func testKeys(t testing.TB) *zmtp.CurveKeys {
	t.Helper()
	keys, err := zmtp.ParseCurveKeys(testPublic, testSecret)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Ensure only a key pair is accepted, and that neither errors nor printing show it.
func TestParseCurveKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, public, secret, want string
	}{
		{"pair", testPublic, testSecret, ""},
		{"swapped", testSecret, testPublic, "does not belong"},
		{"short", testPublic[1:], testSecret, "the public key is malformed"},
		{"secret missing", testPublic, "", "the secret key is malformed"},
		{"no digit", testPublic, "~" + testSecret[1:], "the secret key is malformed"},
		{"over 32 bits", testPublic, "#####" + testSecret[5:], "the secret key is malformed"},
	} {
		keys, err := zmtp.ParseCurveKeys(tt.public, tt.secret)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		case err != nil && len(tt.secret) > 9 && strings.Contains(err.Error(), tt.secret[1:9]):
			t.Errorf("%s: the error contains the key: %v", tt.name, err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
			if keys == nil {
				continue
			}
			if got := fmt.Sprintf(verb, *keys) + fmt.Sprintf(verb, keys); got != "CURVE keysCURVE keys" {
				t.Errorf("%s prints %s", verb, got)
			}
		}
	}
}

// reasons collects why peers were refused.
type reasons struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (r *reasons) add(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err.Error())
}

// await waits for a reason that contains text.
func (r *reasons) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		found := slices.ContainsFunc(r.all, func(s string) bool { return strings.Contains(s, text) })
		all := strings.Join(r.all, "\n")
		r.mu.Unlock()
		if found {
			return
		}
		if time.Now().After(end) {
			t.Errorf("no peer was refused with %q, but:\n%s", text, all)
			return
		}
	}
}

// Ensure interoperability with libzmq as CURVE client, and that it is refused with the reason
// without the keys.
func TestInteropCurve(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	if exec.Command(python, "-c", "import zmq; assert zmq.has('curve')").Run() != nil {
		t.Skip("libzmq of " + python + " has no CURVE")
	}
	var why reasons
	opt := zmtp.Options{Curve: testKeys(t), HandshakeTimeout: 3 * time.Second, Refused: why.add}
	r := echo(t, "tcp://127.0.0.1:0", opt)
	x, err := zmtp.ListenXPub("tcp://127.0.0.1:0", opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(0)
	var work sync.WaitGroup
	defer work.Wait()
	stop := make(chan struct{})
	defer close(stop)
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				x.Send(zmtp.Message{[]byte("topic.x"), []byte("news")}, false)
			}
		}
	})
	out, err := exec.Command(python, "testdata/curve_peer.py", r.Addr().String(), x.Addr().String(),
		testPublic).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	why.await(t, `does not encrypt (mechanism "NULL")`)
	why.await(t, `does not encrypt (mechanism "PLAIN")`)
	why.await(t, "it does not have the public key of this one")
	why.await(t, "i/o timeout")
	why.mu.Lock()
	defer why.mu.Unlock()
	seen := map[string]bool{}
	for _, s := range why.all {
		if seen[s] {
			t.Errorf("a peer that was refused connects again: %s", s)
		}
		seen[s] = true
		if strings.Contains(s, testSecret) || strings.Contains(s, "\n") {
			t.Errorf("a reason with a key or several lines: %q", s)
		}
	}
}

// Ensure a CURVE client is refused by a socket without keys, and a peer that claims to be a
// server by one with keys; nothing but the greeting is sent to them.
func TestMechanismMismatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, mechanism string
		server          byte
		keys            *zmtp.CurveKeys
		want            string
	}{
		{"CURVE at NULL", "CURVE", 0, nil, `requires the mechanism "CURVE", and this socket has no keys`},
		{"NULL at CURVE", "NULL", 0, testKeys(t), `does not encrypt (mechanism "NULL")`},
		{"server at server", "CURVE", 1, testKeys(t), "only clients can connect"},
		{"longer name", "CURVE2", 0, testKeys(t), `(mechanism "CURVE2")`},
		{"name in the padding", "CURVE\x00x", 0, testKeys(t), `(mechanism "CURVE\x00x")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var why reasons
			r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{Curve: tt.keys, Refused: why.add})
			nc := raw(t, r.Addr())
			g := make([]byte, 64)
			g[0], g[9], g[10], g[32] = 0xFF, 0x7F, 3, tt.server
			copy(g[12:], tt.mechanism)
			if _, err := nc.Write(g); err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(nc); len(b) > 64 { // reset or end: the connection is closed
				t.Errorf("received %q", b)
			}
			why.await(t, tt.want)
		})
	}
}
