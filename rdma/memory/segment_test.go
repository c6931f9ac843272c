package memory

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSegment: slots are separate, and what is outside of a slot is refused.
func TestSegment(t *testing.T) {
	t.Parallel()
	s, err := New("test", 3*pageSize+100, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Slots() != 3 || s.SlotSize() != pageSize {
		t.Errorf("%d slots of %d bytes", s.Slots(), s.SlotSize())
	}
	for slot := range 3 {
		if err := s.WriteAt(slot, 1, []byte{byte('a' + slot)}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Reader(1, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "\x00b\x00" {
		t.Errorf("slot 1 has %q: %v", got, err)
	}
	for _, bad := range []error{
		s.WriteAt(3, 0, nil), s.WriteAt(-1, 0, nil), s.WriteAt(0, pageSize, []byte{1}), s.WriteAt(0, -1, nil),
	} {
		if bad == nil {
			t.Error("a write outside of a slot succeeded")
		}
	}
	if _, err := s.Reader(0, pageSize+1); err == nil {
		t.Error("a read outside of a slot succeeded")
	}
	if err := s.Discard(); err != nil {
		t.Fatal(err)
	}
	r, _ = s.Reader(1, 3)
	if got, _ := io.ReadAll(r); !bytes.Equal(got, make([]byte, 3)) {
		t.Errorf("slot 1 has %q after Discard", got)
	}
}

// TestSizes: sizes that give no slot a page are refused.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size  int64
		slots int
	}{{0, 1}, {-1, 1}, {pageSize, 2}, {pageSize, 0}, {pageSize, -1}} {
		if s, err := New("test", c.size, c.slots); err == nil {
			s.Close()
			t.Errorf("New(%d, %d) succeeded", c.size, c.slots)
		}
	}
}

// TestSealed: nobody can change the size of a segment, which would end processes that use it by SIGBUS.
func TestSealed(t *testing.T) {
	t.Parallel()
	s, err := New("test", 2*pageSize, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, size := range []int64{0, pageSize, 4 * pageSize} {
		if err := s.File().Truncate(size); err == nil {
			t.Errorf("the segment was truncated to %d bytes", size)
		}
	}
}

// TestSend: another process sees the same memory.
func TestSend(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "memory")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := New("test", 2*pageSize, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sent := make(chan error, 1)
	go func() {
		conn, err := ln.AcceptUnix()
		if err == nil {
			err = Send(conn, []byte("segment\n"), s.File())
			conn.Close()
		}
		sent <- err
	}()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 100)
	n, files, err := Receive(conn, buffer)
	if err != nil || string(buffer[:n]) != "segment\n" || len(files) != 1 {
		t.Fatalf("received %q and %d descriptors: %v", buffer[:n], len(files), err)
	}
	defer files[0].Close()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(files[0].Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor has flags %d: %v", flags, err)
	}
	mapped, err := syscall.Mmap(int(files[0].Fd()), pageSize, pageSize, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	if err := s.WriteAt(1, 7, []byte("seen")); err != nil {
		t.Fatal(err)
	}
	if got := string(mapped[7:11]); got != "seen" {
		t.Errorf("the mapping has %q", got)
	}
}
