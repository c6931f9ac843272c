package memory

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMapping: two mappings of a segment are the same memory, and none is used after its end.
func TestMapping(t *testing.T) {
	t.Parallel()
	s, err := New("test", 3*pageSize, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, err := unix.FcntlInt(s.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Received(os.NewFile(uintptr(fd), "received"), 3)
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
		slots int
		want  string
	}{
		{open(pageSize, unix.F_SEAL_SHRINK), 1, "not sealed"},
		{open(pageSize, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), 1, "not sealed"},
		{open(0, sealed), 1, "not 1 slots"},
		{open(pageSize+1, sealed), 1, "not 1 slots"},
		{open(3*pageSize, sealed), 2, "not 2 slots"},
		{open(pageSize, sealed), 0, "not 0 slots"},
		{open(pageSize, sealed), -1, "not -1 slots"},
		{ordinary, 1, "read its seals"},
	} {
		if s, err := Received(c.file, c.slots); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v; %q was expected", s, err, c.want)
		}
		if _, err := c.file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%q: the descriptor is open", c.want)
		}
	}
}
