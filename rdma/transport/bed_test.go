package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// longest is the longest time that a test waits for something that must happen.
const longest = 2 * time.Minute

// way is a provider with a kind of connections for it.
type way struct {
	name     string
	provider Provider
	listen   func(t testing.TB) net.Listener
	dial     func(address net.Addr) (net.Conn, error)
	identity string // of mutual TLS, for another process
	missing  string // what the provider needs and this machine lacks
}

// identityVariable names the variable with the identity of ways, in a process that a test has started.
const identityVariable = "TRANSPORT_TEST_IDENTITY"

func ways(t testing.TB) []way {
	identity := os.Getenv(identityVariable)
	if identity == "" {
		identity = newIdentity(t)
	}
	server, client := certificates(t, identity)
	dial := func(a net.Addr) (net.Conn, error) { return net.DialTimeout(a.Network(), a.String(), longest) }
	return append([]way{
		{name: "shared memory", provider: SharedMemory{}, listen: listenUnix, dial: dial, identity: identity},
		{name: "TCP", provider: TCP{}, listen: listenTCP, dial: dial, identity: identity},
		{name: "TLS", provider: TCP{}, listen: func(t testing.TB) net.Listener {
			return tls.NewListener(listenTCP(t), server)
		}, dial: func(a net.Addr) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: longest}, a.Network(), a.String(), client)
		}, identity: identity},
	}, verbsWays(t)...)
}

func listenUnix(t testing.TB) net.Listener {
	dir, err := os.MkdirTemp("", "transport")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return listen(t, "unix", filepath.Join(dir, "s"))
}

func listenTCP(t testing.TB) net.Listener { return listen(t, "tcp", "127.0.0.1:0") }

func listen(t testing.TB, network, address string) net.Listener {
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// newIdentity makes a certificate of its own authority and its key, as PEM.
func newIdentity(t testing.TB) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"rank"}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// certificates makes the two ends of mutual TLS, of one identity.
func certificates(t testing.TB, identity string) (server, client *tls.Config) {
	own, err := tls.X509KeyPair([]byte(identity), []byte(identity))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own.Leaf)
	pair := []tls.Certificate{own}
	return &tls.Config{
			Certificates: pair, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		},
		&tls.Config{Certificates: pair, RootCAs: pool, ServerName: "rank", MinVersion: tls.VersionTLS13}
}

// segment returns memory of this process.
func segment(t testing.TB, size int64, slots int) *memory.Mapping {
	s, err := memory.New("tfcluster-transport-test", memory.Class{Slots: slots, Size: size / int64(slots)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Map()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); s.Close() })
	return m
}

// registered returns memory that is registered with a provider.
func registered(t testing.TB, w way, own *memory.Mapping) *Region {
	region, err := w.provider.Register(own)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() {
		if err := region.Close(); err != nil {
			t.Error(err)
		}
	})
	return region
}

// end is one end of a link, and the memory into which the other end writes.
type end struct {
	Link
	own *memory.Mapping
}

// connections returns the two ends of a connection.
func connections(t testing.TB, w way) (a, b net.Conn) {
	ln := w.listen(t)
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			t.Error(err)
		}
		if c, ok := conn.(*tls.Conn); ok {
			if err := c.Handshake(); err != nil {
				t.Error(err)
			}
		}
		accepted <- conn
	}()
	dialled, err := w.dial(ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return dialled, <-accepted
}

// linked returns the two ends of a link with slots of a size.
func linked(t testing.TB, w way, slots int, slotSize int64) (a, b *end) {
	ends := []*end{{own: segment(t, slotSize*int64(slots), slots)}, {own: segment(t, slotSize*int64(slots), slots)}}
	here, there := connections(t, w)
	errs := make(chan error, 2)
	for i, conn := range []net.Conn{here, there} {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			defer cancel()
			var err error
			ends[i].Link, err = w.provider.Connect(ctx, conn, registered(t, w, ends[i].own))
			errs <- err
		}()
	}
	for range ends {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { ends[0].Close(); ends[1].Close() })
	return ends[0], ends[1]
}

// write writes within the time limit of a test.
func (e *end) write(t testing.TB, to Place, data []byte, immediate uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if err := e.Write(ctx, to, data, immediate); err != nil {
		t.Fatal(err)
	}
}

// next returns the next completion; false if the link has ended.
func (e *end) next(t testing.TB) (Completion, bool) {
	t.Helper()
	select {
	case c, more := <-e.Completions():
		return c, more
	case <-time.After(longest):
		t.Fatal("there is no completion")
		return Completion{}, false
	}
}

// ended waits for the end of a link and returns why it has ended.
func (e *end) ended(t testing.TB) error {
	t.Helper()
	for {
		if _, more := e.next(t); !more {
			return e.Err()
		}
	}
}

// received returns the data at the place of a completion.
func (e *end) received(t testing.TB, c Completion) []byte {
	t.Helper()
	var data []byte
	err := e.own.Use(func(slots [][]byte) error {
		data = append(data, slots[c.Slot][c.Offset:c.Offset+c.Size]...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// open returns what this process has open of a test: descriptors, mappings, memory that a device knows, and
// goroutines of this package.
func open(t testing.TB) string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, fd := range fds { // except those of the poller
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil &&
			(strings.HasPrefix(to, "socket:") || strings.Contains(to, "memfd")) {
			files++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	goroutines := strings.Count(string(stacks), "(*link).read(") + strings.Count(string(stacks), "(*remote).follow(")
	return fmt.Sprintf("%d files, %d mappings, %s, %d goroutines", files,
		strings.Count(string(maps), "tfcluster-transport-test"), pinned(t), goroutines)
}

// pinned returns the line of /proc/self/status about the memory that devices know.
func pinned(t testing.TB) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmPin:")
	line, _, _ = strings.Cut(line, "\n")
	return "pinned: " + strings.TrimSpace(line)
}
