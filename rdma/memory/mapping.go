package memory

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Mapping is a segment in the address space of this process. Its methods may be called from any goroutine.
type Mapping struct {
	segment *Segment

	mu    sync.RWMutex
	data  []byte   // guarded by mu; nil: closed
	slots [][]byte // of data
}

// ErrClosed is the error of a use after Close.
var ErrClosed = errors.New("the shared memory is not mapped any more: its run or its feed has ended")

// Received returns the segment of a descriptor that another process has sent. It takes the descriptor over, also if
// it fails: what the other process could truncate is refused, because access to it would end this process by SIGBUS.
func Received(file *os.File, layout Layout) (*Segment, error) {
	if err := checkReceived(file, layout); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory of another process is refused: %w", err), file.Close())
	}
	return &Segment{file: file, layout: layout}, nil
}

func checkReceived(file *os.File, layout Layout) error {
	if err := layout.Check(); err != nil {
		return err
	}
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("its seals cannot be read: %w", err)
	}
	if want := unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL; seals&want != want {
		return errors.New("its size is not sealed, so the other process could end this one by making it smaller")
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != layout.Size() {
		return fmt.Errorf("it has %d bytes, but was announced as %s", info.Size(), layout)
	}
	return nil
}

// Map maps the whole segment for reading and writing, with huge pages where the system has them for shared memory.
func (s *Segment) Map() (*Mapping, error) {
	data, err := unix.Mmap(int(s.file.Fd()), 0, int(s.layout.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", s.layout.Size(), err)
	}
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE) // a kernel without them
	m := &Mapping{segment: s, data: data}
	for slot := range s.layout.Slots() {
		begin, end := s.layout.Begin(slot), s.layout.Begin(slot+1)
		m.slots = append(m.slots, data[begin:end:end])
	}
	return m, nil
}

// Segment returns the segment that is mapped.
func (m *Mapping) Segment() *Segment { return m.segment }

// Use calls use with the memory of all slots. It stays mapped until use returns, and must not be kept. use must not
// call Use of the same mapping.
func (m *Mapping) Use(use func(slots [][]byte) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.data == nil {
		return ErrClosed
	}
	return use(m.slots)
}

// Bytes returns the memory of all slots, one behind the other, for a device that knows it by its address. It is valid
// until Close, which does not wait for the device; nil after it.
func (m *Mapping) Bytes() []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.data
}

// Close waits for calls of Use and unmaps the memory. The segment stays open.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data, m.slots = nil, nil
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmap %d bytes of shared memory: %w", len(data), err)
	}
	return nil
}
