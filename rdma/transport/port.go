package transport

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// port is a port of an open device, with the GID by which peers reach it.
type port struct {
	verbs.Port
	index int
	gid   verbs.GID
}

// choosePort opens the device and returns the port that settings and rule choose. The rule prefers, in this order, the
// RoCE v2 address that the host is known by, another IPv4 address of RoCE v2, InfiniBand, and the rest. local is the
// address by which the other hosts know this one. The error says in one line why there is none.
func choosePort(l *verbs.Library, s VerbsSettings, local netip.Addr) (*verbs.Device, port, error) {
	infos, err := l.Devices()
	if err != nil {
		return nil, port{}, err
	}
	name, _, err := s.device()
	if err != nil {
		return nil, port{}, err
	}
	var best *verbs.Device
	var chosen port
	rank := 0
	var reasons []error
	for _, info := range infos {
		if name != "" && info.Name != name {
			continue
		}
		d, p, n, err := bestPort(l, info, s, local)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		if n > rank {
			best, d = d, best
			chosen, rank = p, n
		}
		if d != nil {
			reasons = append(reasons, d.Close())
		}
	}
	switch {
	case best != nil:
		return best, chosen, nil
	case len(reasons) > 0:
		return nil, port{}, oneLine(reasons)
	case name != "":
		return nil, port{}, fmt.Errorf("there is no RDMA device %s", name)
	}
	return nil, port{}, ErrNoRDMA
}

// ErrNoRDMA is the error on a host without a device: nothing is to be said about RDMA.
var ErrNoRDMA = errors.New("there is no RDMA device")

// oneLine joins errors by semicolons.
func oneLine(errs []error) error {
	var texts []string
	for _, err := range errs {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	return errors.New(strings.Join(texts, "; "))
}

// bestPort opens a device and returns its best port with its rank.
func bestPort(l *verbs.Library, info verbs.DeviceInfo, s VerbsSettings, local netip.Addr) (_ *verbs.Device, best port, rank int, err error) {
	if info.IWARP {
		return nil, port{}, 0, fmt.Errorf("%s has iWARP, which has no writes with immediates", info.Name)
	}
	d, err := l.OpenDevice(info.Name)
	if err != nil {
		return nil, port{}, 0, err
	}
	_, only, _ := s.device()
	why := errors.New("no port is active")
	for number := 1; number <= d.Ports(); number++ {
		if only != 0 && number != only {
			continue
		}
		p, err := d.Port(number)
		if err != nil {
			why = err
			continue
		}
		if !p.Active {
			continue
		}
		why = errors.New("no GID of an active port can be used")
		for index := range p.GIDs {
			if s.GID >= 0 && index != s.GID {
				continue
			}
			gid, err := d.GID(number, index)
			if err != nil || gid == (verbs.GID{}) {
				continue // one that a container may not read, or an empty one of a thousand
			}
			if n := rankGID(p.Ethernet, gid, gidType(info.Path, number, index), local); n > rank {
				best, rank = port{p, index, gid}, n
			}
		}
	}
	if rank == 0 {
		return nil, port{}, 0, errors.Join(fmt.Errorf("%s: %w", info.Name, why), d.Close())
	}
	return d, best, rank, nil
}

// rankGID says how well a GID serves.
func rankGID(ethernet bool, gid verbs.GID, kind string, local netip.Addr) int {
	address := gid.Address()
	isV2 := kind == "" || kind == "RoCE v2" // "": sysfs does not say
	switch {
	case !ethernet:
		return 4
	case isV2 && address == local:
		return 6
	case isV2 && address.Is4():
		return 5
	case isV2 && !address.IsLinkLocalUnicast():
		return 3
	case isV2:
		return 2
	}
	return 1
}

// gidType reads the type of a GID from the device's folder in sysfs, "RoCE v2" or "IB/RoCE v1"; "" if it is not known:
// in containers the file may be unreadable (EINVAL).
func gidType(device string, port, index int) string {
	b, err := os.ReadFile(filepath.Join(device, "ports", strconv.Itoa(port), "gid_attrs", "types", strconv.Itoa(index)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
