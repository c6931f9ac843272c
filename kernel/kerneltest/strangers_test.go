package kerneltest_test

import (
	"encoding/binary"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// stranger connects to a port of the kernel without its key, as a socket of a kind.
func stranger(t *testing.T, ip string, port int, kind string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xFF, 0x7F, 3
	copy(g[12:], "NULL")
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(kind))) + kind
	if _, err := nc.Write(append(g, append([]byte{4, byte(len(ready))}, ready...)...)); err != nil {
		t.Fatal(err)
	}
	return nc
}

// Ensure a peer without the key can send or leave unread only a limited amount on any socket,
// and that clients are served meanwhile.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	c := f.Conn
	for _, tt := range []struct {
		name string
		port int
		kind string
	}{
		{"shell", c.ShellPort, "DEALER"},
		{"control", c.ControlPort, "DEALER"},
		{"stdin", c.StdinPort, "DEALER"},
		{"heartbeat", c.HBPort, "REQ"},
		{"iopub", c.IOPubPort, "SUB"},
	} {
		nc := stranger(t, c.IP, tt.port, tt.kind)
		const most = 100 << 20
		_, err := nc.Write(binary.BigEndian.AppendUint64([]byte{2}, most))
		block := make([]byte, 1<<20)
		sent := 0
		for ; err == nil && sent < most-len(block); sent += len(block) {
			_, err = nc.Write(block)
		}
		if err == nil {
			t.Errorf("%s accepts %d bytes of a frame from a peer without the key", tt.name, sent)
		}
	}
	nc := stranger(t, c.IP, c.HBPort, "DEALER")
	beats := []byte(strings.Repeat("\x00\x04ping", 10_000))
	var err error
	sent := 0
	for ; err == nil && sent < 300<<20; sent += len(beats) {
		_, err = nc.Write(beats)
	}
	if err == nil {
		t.Errorf("%d bytes of heartbeats were accepted and not read back", sent)
	}
	if r, _ := f.Run("1"); r.Status != "ok" {
		t.Errorf("%+v", r)
	}
	f.NothingLeft()
}

// Ensure strangers who connect and stay silent, more of them than a socket has places, do not keep clients out.
func TestSilentStrangers(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	for range 1100 {
		stranger(t, f.Conn.IP, f.Conn.ShellPort, "DEALER")
	}
	other := kerneltest.Connect(t, f.Conn).Ready()
	if r, _ := other.Run("1"); r.Status != "ok" {
		t.Errorf("%+v", r)
	}
	f.Drain()
	if r, _ := f.Run("1"); r.Status != "ok" {
		t.Errorf("%+v", r)
	}
}
