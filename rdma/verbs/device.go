package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// transportIWARP is IBV_TRANSPORT_IWARP.
const transportIWARP = 1

// DeviceInfo is a device that the library lists.
type DeviceInfo struct {
	Name  string // "mlx5_0"
	File  string // in /dev/infiniband: "uverbs0"
	Path  string // in sysfs: "/sys/class/infiniband/mlx5_0"
	IWARP bool
}

// Devices lists the devices of this host, also those that this process may not open.
func (l *Library) Devices() ([]DeviceInfo, error) {
	var all []DeviceInfo
	err := l.list(func(info DeviceInfo, _ uintptr) error {
		all = append(all, info)
		return nil
	})
	return all, err
}

// list calls use with each device, until it returns an error. The address of a device is valid until list returns.
func (l *Library) list(use func(info DeviceInfo, device uintptr) error) error {
	var devices uintptr
	n, err := query[int32](func(address uintptr) (err error) {
		devices, err = l.pointer(l.getDeviceList, address)
		return err
	})
	if errors.Is(err, unix.ENOSYS) { // the kernel has no RDMA
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the RDMA devices: %w", err)
	}
	defer call(l.freeDeviceList, devices)
	for i := range n {
		device := *at[uintptr](devices + uintptr(i)*wordSize)
		if device == 0 {
			break // the list ends with 0; a device may have gone since it was counted
		}
		d := at[deviceHead](device)
		info := DeviceInfo{Name: text(d.Name[:]), File: text(d.File[:]), Path: text(d.Path[:]), IWARP: d.Transport == transportIWARP}
		if err := use(info, device); err != nil {
			return err
		}
	}
	return nil
}

// Device is an open device. Its methods may be called from any goroutine.
type Device struct {
	Info    DeviceInfo
	library *Library
	context uintptr
	limits  deviceAttr
}

// errFound ends the search for a device.
var errFound = errors.New("found")

// OpenDevice opens a device by its name.
func (l *Library) OpenDevice(name string) (*Device, error) {
	d := &Device{library: l}
	err := l.list(func(info DeviceInfo, device uintptr) error {
		if info.Name != name {
			return nil
		}
		d.Info = info
		var err error
		if d.context, err = l.pointer(l.openDevice, device); err != nil {
			return fmt.Errorf("open /dev/infiniband/%s of %s: %w", info.File, name, err)
		}
		return errFound
	})
	switch {
	case err == nil:
		return nil, fmt.Errorf("there is no RDMA device %s", name)
	case !errors.Is(err, errFound):
		return nil, err
	}
	if d.limits, err = query[deviceAttr](func(address uintptr) error { return l.status(l.queryDevice, d.context, address) }); err != nil {
		return nil, errors.Join(fmt.Errorf("query %s: %w", name, err), d.Close())
	}
	return d, nil
}

// Ports returns the number of ports, which count from 1.
func (d *Device) Ports() int { return int(d.limits.Ports) }

// Close closes the device. Everything of it has been closed before.
func (d *Device) Close() error {
	if err := d.library.status(d.library.closeDevice, d.context); err != nil {
		return fmt.Errorf("close %s: %w", d.Info.Name, err)
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
	MaxMessage uint32 // in bytes
	LID        uint16 // on InfiniBand
	GIDs       int    // the size of the table
}

// Port returns the state of a port.
func (d *Device) Port(number int) (Port, error) {
	attr, err := query[portAttr](func(address uintptr) error {
		return d.library.status(d.library.queryPort, d.context, uintptr(number), address)
	})
	if err != nil {
		return Port{}, fmt.Errorf("query port %d of %s: %w", number, d.Info.Name, err)
	}
	return Port{
		Number: number, Active: attr.State == portActive, Ethernet: attr.LinkLayer == linkEthernet, MTU: attr.MTU,
		MaxMessage: attr.MaxMessage, LID: attr.LID, GIDs: int(attr.GIDs),
	}, nil
}

// GID is a global identifier: an address of a port. On RoCE it is an IP address.
type GID [16]byte

// Address returns the GID as an IP address; one of IPv4 as such.
func (g GID) Address() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GID returns an entry of a port's table; an empty one is zero.
func (d *Device) GID(port, index int) (GID, error) {
	gid, err := query[GID](func(address uintptr) error {
		return d.library.status(d.library.queryGID, d.context, uintptr(port), uintptr(index), address)
	})
	if err != nil {
		return GID{}, fmt.Errorf("query GID %d of port %d of %s: %w", index, port, d.Info.Name, err)
	}
	return gid, nil
}
