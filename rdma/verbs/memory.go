package verbs

import "fmt"

// Domain is a protection domain: queue pairs reach the memory that is registered in their domain.
type Domain struct {
	device *Device
	handle uintptr
}

// NewDomain makes a protection domain.
func (d *Device) NewDomain() (*Domain, error) {
	handle, err := d.library.pointer(allocDomain, d.context)
	if err != nil {
		return nil, fmt.Errorf("make a protection domain of the RDMA device %s: %w", d.Name, err)
	}
	return &Domain{d, handle}, nil
}

// Close ends the domain, whose memory and queue pairs have been closed.
func (p *Domain) Close() error {
	if err := p.device.library.status(deallocDomain, p.handle); err != nil {
		return fmt.Errorf("close a protection domain of the RDMA device %s: %w", p.device.Name, err)
	}
	return nil
}

// Access is what a device may do with memory. It may always read it for writes of this process.
type Access uint32

// The values of enum ibv_access_flags. RemoteWrite needs LocalWrite.
const (
	LocalWrite  Access = 1
	RemoteWrite Access = 2
)

// Memory is memory that the device reads and writes: its pages are locked.
type Memory struct {
	library             *Library
	handle              uintptr
	Address             uint64
	LocalKey, RemoteKey uint32
	size                uint64
}

// Register gives memory to the device. It is a mapping, not of Go's allocator, and is unmapped after Close.
// The error is ENOMEM where the process may not lock so many pages (RLIMIT_MEMLOCK).
func (p *Domain) Register(memory []byte, access Access) (*Memory, error) {
	l := p.device.library
	handle, err := l.pointer(registerMemory, p.handle, addressOf(memory), uintptr(len(memory)), uintptr(access))
	if err != nil {
		return nil, fmt.Errorf("register %d bytes with %s: %w", len(memory), p.device.Name, err)
	}
	m := at[memoryHead](handle)
	return &Memory{l, handle, uint64(addressOf(memory)), m.LocalKey, m.RemoteKey, uint64(len(memory))}, nil
}

// Contains returns the address of data, and whether the memory contains all of it.
func (m *Memory) Contains(data []byte) (at uint64, ok bool) {
	at = uint64(addressOf(data))
	return at, at >= m.Address && at-m.Address <= m.size-min(m.size, uint64(len(data)))
}

// Close takes the memory back: from then on the device refuses writes with its key. It may be called again.
func (m *Memory) Close() error {
	if m.handle == 0 {
		return nil
	}
	handle := m.handle
	m.handle = 0
	if err := m.library.status(deregister, handle); err != nil {
		return fmt.Errorf("deregister %d bytes: %w", m.size, err)
	}
	return nil
}
