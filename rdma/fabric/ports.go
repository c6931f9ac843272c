package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// choosePorts chooses the ports of each executor: those of the link, without ports in subnets that other executors do
// not have, and without ports that would slow the others down. The user's own NCCL_IB_HCA is left alone.
func choosePorts(compared []*candidate, link Link) {
	for _, c := range compared {
		for _, p := range c.usable {
			if p.has(link) {
				c.chosen = append(c.chosen, p)
			} else {
				c.drop(p, "it is "+string(p.Link))
			}
		}
	}
	if link == RoCE1 || link == RoCE2 {
		dropForeign(compared, link)
	}
	for _, c := range compared {
		c.dropSlow()
	}
}

// drop notes why a port is not used.
func (c *candidate) drop(p *Port, why string) {
	c.dropped = append(c.dropped, droppedPort{p, why})
}

// dropIf drops the chosen ports for which problem returns a reason.
func (c *candidate) dropIf(problem func(*Port) string) {
	if _, own := c.find("NCCL_IB_HCA"); own {
		return
	}
	var kept []*Port
	for _, p := range c.chosen {
		if why := problem(p); why != "" {
			c.drop(p, why)
		} else {
			kept = append(kept, p)
		}
	}
	c.chosen = kept
}

// dropForeign drops RoCE ports in subnets that are not those of all executors, if there is a subnet of all. Without
// one, and where the ports outside are the faster ones, the subnets are taken to be routed.
func dropForeign(compared []*candidate, link Link) {
	var shared []netip.Prefix
	for i, c := range compared {
		own := c.gidSubnets(link)
		if i == 0 {
			shared = own
		}
		shared = slices.DeleteFunc(shared, func(s netip.Prefix) bool { return !slices.Contains(own, s) })
	}
	if len(shared) == 0 || link == RoCE2 && areOutsideFaster(compared, link, shared) {
		return
	}
	for _, c := range compared {
		c.subnets = shared
		c.dropIf(func(p *Port) string {
			g := p.gid(link, shared)
			if slices.Contains(shared, g.Prefix.Masked()) {
				return ""
			}
			return fmt.Sprintf("the other executors have no port in its subnet %s", g.Prefix.Masked())
		})
	}
}

// areOutsideFaster returns whether each executor's ports outside of the shared subnets have a higher rate, together,
// than those within: they are rails, each in a subnet of its own, and a network for management or storage
// is what is shared.
func areOutsideFaster(compared []*candidate, link Link, shared []netip.Prefix) bool {
	for _, c := range compared {
		within, outside := 0.0, 0.0
		for _, p := range c.chosen {
			if slices.Contains(shared, p.gid(link, shared).Prefix.Masked()) {
				within += p.Rate
			} else {
				outside += p.Rate
			}
		}
		if outside <= within {
			return false
		}
	}
	return true
}

// gidSubnets returns the known subnets of an executor's chosen ports.
func (c *candidate) gidSubnets(link Link) []netip.Prefix {
	var found []netip.Prefix
	for _, p := range c.chosen {
		for i := range p.GIDs {
			g := &p.GIDs[i]
			if (g.Version == 2) == (link == RoCE2) && wide(g.Prefix) {
				found = append(found, g.Prefix.Masked())
			}
		}
	}
	return found
}

// dropSlow drops ports that are so slow that the others are faster without them: NCCL gives each port an equal share of
// the data, so that n ports together have n times the rate of the slowest. These are ports for management or storage.
func (c *candidate) dropSlow() {
	least, best := 0.0, 0.0
	for _, limit := range c.chosen {
		n := 0
		for _, p := range c.chosen {
			if p.Rate >= limit.Rate {
				n++
			}
		}
		if total := limit.Rate * float64(n); total > best {
			least, best = limit.Rate, total
		}
	}
	c.dropIf(func(p *Port) string {
		if p.Rate >= least {
			return ""
		}
		return fmt.Sprintf("it has %s, others %s", RateText(p.Rate), RateText(least))
	})
}

// selects returns whether a value of NCCL_IB_HCA selects a port: names of devices, each with a port or not, separated
// by commas; ^ before them excludes these, = takes them as complete names instead of beginnings.
func selects(value string, p *Port) bool {
	list, not := strings.CutPrefix(value, "^")
	list, exact := strings.CutPrefix(list, "=")
	if list == "" {
		return true
	}
	found := false
	for entry := range strings.SplitSeq(list, ",") {
		device, number, numbered := strings.Cut(entry, ":")
		same := p.Device == device || !exact && strings.HasPrefix(p.Device, device)
		found = found || same && (!numbered || number == fmt.Sprint(p.Number))
	}
	return found != not
}
