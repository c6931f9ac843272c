package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"
)

// transportIWARP is IBV_TRANSPORT_IWARP.
const transportIWARP = 1

// Device is an open device. Its methods may be called from any goroutine.
type Device struct {
	Name    string // "mlx5_0"
	IWARP   bool
	library *Library
	context uintptr
}

// OpenDevice opens a device by its name.
func (l *Library) OpenDevice(name string) (*Device, error) {
	var devices uintptr
	n, err := query[int32](func(address uintptr) (err error) {
		devices, err = l.pointer(getDeviceList, address)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOSYS): // the kernel has no RDMA
		n = 0
	case err != nil:
		return nil, fmt.Errorf("list the RDMA devices: %w", err)
	default:
		defer l.call(freeDeviceList, devices)
	}
	for i := range n {
		device := *at[uintptr](devices + uintptr(i)*wordSize)
		if device == 0 {
			break // the list ends with 0; a device may have gone since it was counted
		}
		head := at[deviceHead](device)
		if text(head.Name[:]) != name {
			continue
		}
		context, err := l.pointer(openDevice, device)
		if err != nil {
			file := "/dev/infiniband/" + text(head.File[:])
			return nil, fmt.Errorf("open %s of %s: %w", file, name, refused(file, err))
		}
		return &Device{name, head.Transport == transportIWARP, l, context}, nil
	}
	return nil, fmt.Errorf("there is no RDMA device %s: ibv_devices lists those of the host", name)
}

// refused returns EACCES or EPERM where a file may not be opened: libibverbs then looks for another one, and returns
// the error of that.
func refused(file string, err error) error {
	fd, own := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if own == nil {
		_ = unix.Close(fd)
	}
	if errors.Is(own, fs.ErrPermission) {
		return own
	}
	return err
}

// Close closes the device. Everything of it has been closed before.
func (d *Device) Close() error {
	if err := d.library.status(closeDevice, d.context); err != nil {
		return fmt.Errorf("close %s: %w", d.Name, err)
	}
	return nil
}

// portActive is IBV_PORT_ACTIVE, linkEthernet IBV_LINK_LAYER_ETHERNET.
const (
	portActive   = 4
	linkEthernet = 2
)

// Port is a port of a device.
type Port struct {
	Number     int
	Active     bool
	Ethernet   bool   // RoCE; else InfiniBand
	MTU        uint32 // as enum ibv_mtu: 1 is 256 bytes, 5 is 4096
	MaxMessage uint32 // in bytes; 0: the driver does not report it, as mana_ib before May 2026
	LID        uint16 // on InfiniBand
}

// Port returns the state of a port.
func (d *Device) Port(number int) (Port, error) {
	attr, err := query[portAttr](func(address uintptr) error {
		return d.library.status(queryPort, d.context, uintptr(number), address)
	})
	if err != nil {
		return Port{}, fmt.Errorf("query port %d of %s: %w", number, d.Name, err)
	}
	return Port{
		Number: number, Active: attr.State == portActive, Ethernet: attr.LinkLayer == linkEthernet, MTU: attr.MTU,
		MaxMessage: attr.MaxMessage, LID: attr.LID,
	}, nil
}

// GID is a global identifier: an address of a port. On RoCE it is an IP address.
type GID [16]byte

// Address returns the GID as an IP address; one of IPv4 as such.
func (g GID) Address() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GID returns an entry of a port's table; an empty one is zero.
func (d *Device) GID(port, index int) (GID, error) {
	gid, err := query[GID](func(address uintptr) error {
		return d.library.status(queryGID, d.context, uintptr(port), uintptr(index), address)
	})
	if err != nil {
		return GID{}, fmt.Errorf("query GID %d of port %d of %s: %w", index, port, d.Name, err)
	}
	return gid, nil
}
