// Package memory provides memory that processes of one host share: segments of a fixed size, divided into
// slots, which one process creates and hands to others as descriptors.
package memory

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Segment is shared memory of a fixed size, divided into slots of equal size. It has no name: another process
// has it only if it is sent the descriptor (see Send), and the memory is freed when the last process that has
// the descriptor or a mapping ends. Its size is sealed, so that no process can make another fail with SIGBUS
// by truncating it (memfd_create(2), F_ADD_SEALS in fcntl(2)).
//
// The process that creates a segment does not map it: it reads and writes slots by pread and pwrite. All
// methods may be called from any goroutine; who may use which slot is for the owner to decide.
type Segment struct {
	file     *os.File
	slots    int
	slotSize int64
}

// pageSize is the unit of mappings; slots begin at page boundaries.
const pageSize = 4096

// New creates a segment of at most size bytes with a number of slots. The name is shown in /proc/PID/maps.
func New(name string, size int64, slots int) (*Segment, error) {
	if slots < 1 || size < int64(slots)*pageSize {
		return nil, fmt.Errorf("create a segment of %d bytes with %d slots: a slot has at least %d bytes", size, slots, pageSize)
	}
	slotSize := size / int64(slots) / pageSize * pageSize
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a segment: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, slotSize*int64(slots)); err != nil {
		return nil, errors.Join(fmt.Errorf("size a segment: %w", err), file.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(fmt.Errorf("seal a segment: %w", err), file.Close())
	}
	return &Segment{file: file, slots: slots, slotSize: slotSize}, nil
}

// Slots returns the number of slots.
func (s *Segment) Slots() int { return s.slots }

// SlotSize returns the size of a slot in bytes, a multiple of the page size.
func (s *Segment) SlotSize() int64 { return s.slotSize }

// File returns the descriptor to send to another process. It remains the segment's.
func (s *Segment) File() *os.File { return s.file }

// Reader returns a reader of the first n bytes of a slot.
func (s *Segment) Reader(slot int, n int64) (io.Reader, error) {
	if err := s.check(slot, n); err != nil {
		return nil, err
	}
	return io.NewSectionReader(s.file, int64(slot)*s.slotSize, n), nil
}

// WriteAt writes data into a slot, from an offset on.
func (s *Segment) WriteAt(slot int, offset int64, data []byte) error {
	if err := s.check(slot, offset+int64(len(data))); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(data, int64(slot)*s.slotSize+offset); err != nil {
		return fmt.Errorf("write to slot %d: %w", slot, err)
	}
	return nil
}

func (s *Segment) check(slot int, n int64) error {
	if slot < 0 || slot >= s.slots || n < 0 || n > s.slotSize {
		return fmt.Errorf("%d bytes of slot %d: the segment has %d slots of %d bytes", n, slot, s.slots, s.slotSize)
	}
	return nil
}

// Discard gives the memory of all slots back to the system; the slots are zero afterwards. No process may
// use them at that time.
func (s *Segment) Discard() error {
	err := unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, s.slotSize*int64(s.slots))
	if err != nil {
		return fmt.Errorf("discard a segment: %w", err)
	}
	return nil
}

// Close closes the descriptor. Processes that have the segment keep it.
func (s *Segment) Close() error { return s.file.Close() }
