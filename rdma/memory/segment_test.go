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
	s, err := New("test", Class{3, pageSize + 33})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Layout().String(); got != "3 slots of 4096 bytes" {
		t.Errorf("it has %s", got)
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

// TestSizes: sizes that give no slot a page are refused, and more classes than a layout may have.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, l := range []Layout{
		nil,
		{{1, 0}},
		{{1, -1}},
		{{1, pageSize - 1}},
		{{0, pageSize}},
		{{-1, pageSize}},
		{{1, pageSize}, {0, pageSize}},
		{{1 << 40, 1 << 40}},
		make(Layout, MaxClasses+1),
	} {
		if s, err := New("test", l...); err == nil {
			s.Close()
			t.Errorf("a segment of %s was made", l)
		}
	}
}

// TestClasses: slots of several sizes follow each other, and each has its own.
func TestClasses(t *testing.T) {
	t.Parallel()
	s, err := New("test", Class{2, 3*pageSize + 1}, Class{3, pageSize})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := s.Layout()
	if l.Slots() != 5 || l.Size() != 9*pageSize || l.String() != "2 slots of 12288 bytes and 3 of 4096" {
		t.Errorf("%d slots in %d bytes: %s", l.Slots(), l.Size(), l)
	}
	for slot, want := range []int64{3 * pageSize, 3 * pageSize, pageSize, pageSize, pageSize, -1} {
		if got := l.SlotSize(slot); got != want {
			t.Errorf("slot %d has %d bytes, not %d", slot, got, want)
		}
	}
	if got := l.SlotSize(-1); got != -1 {
		t.Errorf("slot -1 has %d bytes", got)
	}
	for slot := range l.Slots() {
		if err := s.WriteAt(slot, l.SlotSize(slot)-1, []byte{byte('a' + slot)}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.Map()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.Use(func(slots [][]byte) error {
		for i, slot := range slots {
			if int64(len(slot)) != l.SlotSize(i) || slot[len(slot)-1] != byte('a'+i) || slot[0] != 0 {
				t.Errorf("slot %d has %d bytes, the last one is %q", i, len(slot), slot[len(slot)-1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSealed: nobody can change the size of a segment, which would end processes that use it by SIGBUS.
func TestSealed(t *testing.T) {
	t.Parallel()
	s, err := New("test", Class{2, pageSize})
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
	s, err := New("test", Class{2, pageSize})
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
