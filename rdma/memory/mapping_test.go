package memory

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMapping: two mappings of a segment are the same memory, and none is used after its end.
func TestMapping(t *testing.T) {
	t.Parallel()
	s, err := New("test", Class{3, pageSize + 33})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, err := unix.FcntlInt(s.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Received(os.NewFile(uintptr(fd), "received"), s.Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ours, err := s.Map()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.Map()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := ours.Use(func(slots [][]byte) error { copy(slots[1], "hello"); return nil }); err != nil {
		t.Fatal(err)
	}
	err = theirs.Use(func(slots [][]byte) error {
		if b := slots[1]; len(slots) != 3 || len(b) != pageSize || cap(b) != pageSize || string(b[:5]) != "hello" {
			t.Errorf("%d bytes, %q", len(b), b[:5])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ours.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ours.Use(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestReceivedRefused: what the sender can truncate, and what has another size.
func TestReceivedRefused(t *testing.T) {
	t.Parallel()
	open := func(size int64, seals int) *os.File {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "test")
	}
	ordinary, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	sealed := unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	for _, c := range []struct {
		file  *os.File
		slots Class
		want  string
	}{
		{open(pageSize, unix.F_SEAL_SHRINK), Class{1, pageSize}, "not sealed"},
		{open(pageSize, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), Class{1, pageSize}, "not sealed"},
		{open(0, sealed), Class{1, pageSize}, "0 bytes, but was announced as 1 slots"},
		{open(pageSize+1, sealed), Class{1, pageSize}, "announced as 1 slots"},
		{open(3*pageSize, sealed), Class{2, pageSize}, "announced as 2 slots of 4096 bytes"},
		{open(pageSize, sealed), Class{0, pageSize}, "whole pages"},
		{open(pageSize, sealed), Class{-1, pageSize}, "whole pages"},
		{open(pageSize, sealed), Class{1, pageSize / 2}, "whole pages"},
		{open(pageSize, sealed), Class{1 << 30, 1 << 40}, "larger than any memory"},
		{ordinary, Class{1, pageSize}, "seals cannot be read"},
	} {
		if s, err := Received(c.file, Layout{c.slots}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v; %q was expected", s, err, c.want)
		}
		if _, err := c.file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%q: the descriptor is open", c.want)
		}
	}
}

// TestSendClosed: a file that is closed while it is sent arrives whole or not at all, never as another descriptor.
func TestSendClosed(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		defer conn.Close()
		ends[i] = conn.(*net.UnixConn)
	}
	for range 200 {
		s, err := New("tfcluster-memory-test", Class{1, pageSize})
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { defer close(closed); s.Close() }()
		sent := Send(ends[0], []byte{1}, s.File())
		<-closed
		if sent != nil {
			if !strings.Contains(sent.Error(), "closed file") {
				t.Errorf("the sender: %v", sent)
			}
			continue
		}
		_, files, err := Receive(ends[1], make([]byte, 1))
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		if got, err := Received(files[0], Layout{{1, pageSize}}); err != nil {
			t.Error(err)
		} else {
			got.Close()
		}
	}
}
