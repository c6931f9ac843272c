// Package memory provides memory that processes of one host share: segments of a fixed size, divided into
// slots, which one process creates and hands to others as descriptors. A segment may have slots of several sizes.
package memory

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Segment is shared memory of a fixed size, divided into slots as its layout says. It has no name: another process
// has it only if it is sent the descriptor (see Send), and the memory is freed when the last process that has
// the descriptor or a mapping ends. Its size is sealed, so that no process can make another fail with SIGBUS
// by truncating it (memfd_create(2), F_ADD_SEALS in fcntl(2)).
//
// The process that creates a segment does not map it: it reads and writes slots by pread and pwrite. All
// methods may be called from any goroutine; who may use which slot is for the owner to decide.
type Segment struct {
	file   *os.File
	layout Layout
}

// pageSize is the unit of mappings; slots begin at page boundaries.
const pageSize = 4096

// New creates a segment with the slots of a layout, whose sizes are rounded down to whole pages. The name is shown
// in /proc/PID/maps.
func New(name string, classes ...Class) (*Segment, error) {
	layout := Layout(classes).rounded()
	if err := layout.Check(); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create shared memory (memfd_create): %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, layout.Size()); err != nil {
		return nil, errors.Join(fmt.Errorf("give shared memory its size of %d bytes: %w", layout.Size(), err), file.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(fmt.Errorf("seal the size of shared memory: %w", err), file.Close())
	}
	return &Segment{file: file, layout: layout}, nil
}

// Layout returns the sizes of the slots.
func (s *Segment) Layout() Layout { return s.layout }

// File returns the descriptor to send to another process. It remains the segment's.
func (s *Segment) File() *os.File { return s.file }

// Reader returns a reader of the first n bytes of a slot.
func (s *Segment) Reader(slot int, n int64) (io.Reader, error) {
	if err := s.check(slot, n); err != nil {
		return nil, err
	}
	return io.NewSectionReader(s.file, s.layout.Begin(slot), n), nil
}

// WriteAt writes data into a slot, from an offset on.
func (s *Segment) WriteAt(slot int, offset int64, data []byte) error {
	if err := s.check(slot, offset+int64(len(data))); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(data, s.layout.Begin(slot)+offset); err != nil {
		return fmt.Errorf("write %d bytes to slot %d of shared memory: %w", len(data), slot, err)
	}
	return nil
}

func (s *Segment) check(slot int, n int64) error {
	if n < 0 || n > s.layout.SlotSize(slot) {
		return fmt.Errorf("%d bytes of slot %d do not fit into shared memory of %s", n, slot, s.layout)
	}
	return nil
}

// Discard gives the memory of all slots back to the system; the slots are zero afterwards. No process may
// use them at that time.
func (s *Segment) Discard() error {
	err := unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, s.layout.Size())
	if err != nil {
		return fmt.Errorf("give shared memory that is not used back to the system: %w", err)
	}
	return nil
}

// Close closes the descriptor. Processes that have the segment keep it.
func (s *Segment) Close() error { return s.file.Close() }
