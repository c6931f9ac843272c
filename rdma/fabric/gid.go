package fabric

import (
	"cmp"
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// roce reads the addresses of a port of Ethernet. dir is the port's folder. Slots whose type cannot be read are left
// out: in a container the kernel refuses those of other network namespaces (EINVAL), as NCCL knows.
func (h *Host) roce(p *Port, dir string) {
	slots, refused := 0, 0
	for _, slot := range h.list(dir+"/gids", maxGIDs) {
		index, err := strconv.Atoi(slot)
		address, ok := parseGID(h.read(path.Join(dir, "gids", slot)))
		if err != nil || !ok {
			continue
		}
		slots++
		kind, err := h.readFile(path.Join(dir, "gid_attrs/types", slot))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			refused++
		}
		version := parseVersion(kind)
		netdev := h.read(path.Join(dir, "gid_attrs/ndevs", slot))
		p.Netdev = cmp.Or(p.Netdev, netdev)
		if version == 0 || address.Is6() && address.IsLinkLocalUnicast() { // those of IPv4 (169.254.0.0/16) can be used
			continue
		}
		p.GIDs = append(p.GIDs, GID{Index: index, Version: version, Prefix: h.subnet(netdev, address)})
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	p.Link = RoCE1
	for _, g := range p.GIDs {
		if g.Version == 2 {
			p.Link = RoCE2
		}
	}
	switch {
	case len(p.GIDs) > 0:
	case slots > 0 && refused == slots:
		p.Link, p.Problem = "", "no GID of it can be read in this container"
	case p.Netdev != "":
		p.Problem, p.Remedy = p.Netdev+" has no IP address", "give it one, if it is to be used"
	default:
		p.Problem = "its network interface has no IP address"
	}
}

// parseGID returns the address of "fe80:0000:0000:0000:0202:c9ff:fe00:0001", and of "0000:…:ffff:0a00:0001" that of
// IPv4. Empty slots have zeros only.
func parseGID(text string) (address netip.Addr, ok bool) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.IsUnspecified() || address.Zone() != "" {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}

// parseVersion returns the version of RoCE of a GID's type; 0: not known.
func parseVersion(kind string) int {
	switch {
	case strings.HasPrefix(kind, "IB/RoCE v1"), strings.HasPrefix(kind, "RoCE v1"):
		return 1
	case strings.HasPrefix(kind, "RoCE v2"):
		return 2
	}
	return 0
}

// subnet returns an address with the length of its subnet's prefix.
func (h *Host) subnet(netdev string, address netip.Addr) netip.Prefix {
	for _, i := range h.Interfaces {
		for _, p := range i.Prefixes {
			if i.Name == netdev && p.Addr() == address {
				return p
			}
		}
	}
	return netip.PrefixFrom(address, address.BitLen())
}

// gid returns the address with which a port is to be used as RoCE, nil if it has none: the first of IPv4 in a preferred
// subnet, otherwise the first in one, otherwise the first of IPv4, otherwise the first. The order of a port's addresses
// is that in which its host was given them, and an address of IPv4 cannot be connected to one of IPv6.
func (p *Port) gid(link Link, preferred []netip.Prefix) *GID {
	version := 1
	if link == RoCE2 {
		version = 2
	}
	rank := func(g *GID) int {
		n := 0
		if !slices.ContainsFunc(preferred, func(s netip.Prefix) bool { return s.Contains(g.Prefix.Addr()) }) {
			n += 2
		}
		if !g.Prefix.Addr().Is4() {
			n++
		}
		return n
	}
	var best *GID
	for i := range p.GIDs {
		if g := &p.GIDs[i]; g.Version == version && (best == nil || rank(g) < rank(best)) {
			best = g
		}
	}
	return best
}

// wide returns whether a prefix is that of a subnet, not of a single address.
func wide(p netip.Prefix) bool { return p.IsValid() && !p.IsSingleIP() }
