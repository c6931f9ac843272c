package fabric

import (
	"net/netip"
	"slices"
	"strconv"
)

// Collective is the port by which a task's collective calls write into the memory of tasks on other hosts, with the
// site's settings of it. Package rdma/transport explains them.
type Collective struct {
	Device string
	Port   int
	GID    int // index
	// Of NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT, NCCL_IB_TC and NCCL_IB_SL; -1: not set.
	Timeout, Retries, TrafficClass, ServiceLevel int
}

// collective returns the port of an executor's collective calls, nil for TCP: that of the address by which the others
// know the executor, otherwise the first one that NCCL is to use.
func (c *candidate) collective(link Link) *Collective {
	if link == Ethernet || len(c.chosen) == 0 {
		return nil
	}
	port := c.chosen[0]
	if i := slices.IndexFunc(c.chosen,
		func(p *Port) bool { return p.Netdev != "" && p.Netdev == c.Interface.Name }); i >= 0 {
		port = c.chosen[i]
	}
	chosen := &Collective{
		Device: port.Device, Port: port.Number, Timeout: c.number("NCCL_IB_TIMEOUT", 31),
		Retries: c.number("NCCL_IB_RETRY_CNT", 7), TrafficClass: c.number("NCCL_IB_TC", 255),
		ServiceLevel: c.number("NCCL_IB_SL", 15),
	}
	index := c.number("NCCL_IB_GID_INDEX", maxGIDs)
	switch own := func(g GID) bool { return g.Index == index }; {
	case link == InfiniBand:
		chosen.GID = max(index, 0)
	case slices.ContainsFunc(port.GIDs, own):
		chosen.GID = index
	default:
		chosen.GID = port.gid(link, c.preferred()).Index
	}
	return chosen
}

// anyIPv4 has every address of IPv4.
var anyIPv4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// preferred returns the subnets in which the addresses of ports are looked for first: those that all executors share,
// otherwise that of the executor's address, and any of IPv4 before one of IPv6.
func (c *candidate) preferred() []netip.Prefix {
	if len(c.subnets) > 0 {
		return c.subnets
	}
	for _, p := range c.Interface.Prefixes {
		if p.Addr().String() == c.Address && wide(p) {
			if !p.Addr().Is4() {
				return []netip.Prefix{anyIPv4, p.Masked()}
			}
			return []netip.Prefix{p.Masked()}
		}
	}
	return nil
}

// number returns a setting that is not Decide's; -1 if there is none from 0 to most.
func (c *candidate) number(name string, most int) int {
	v, _ := c.find(name)
	n, err := strconv.Atoi(v.Value)
	if err != nil || n < 0 || n > most {
		return -1
	}
	return n
}
