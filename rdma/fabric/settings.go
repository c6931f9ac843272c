package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// glooInterface is the variable with the interface of gloo, PyTorch's library for CPUs.
const glooInterface = "GLOO_SOCKET_IFNAME"

// settings returns an executor's settings: Decide's, with the user's in their places, and the user's others.
func (c *candidate) settings(link Link, mode Mode, why string) []Setting {
	wanted := c.interfaceSettings()
	switch {
	case !c.Compared:
	case link == Ethernet:
		wanted = append(wanted, c.tcpSettings(mode, why)...)
	default:
		wanted = append(wanted, c.rdmaSettings(link, mode)...)
	}
	var all []Setting
	for _, w := range wanted {
		if v, own := c.find(w.Name); own {
			reason := ""
			if v.Value != w.Value {
				reason = fmt.Sprintf("instead of %s: %s", w.Value, w.Reason)
			}
			w = Setting{Name: w.Name, Value: v.Value, Source: v.Source, Reason: reason}
		}
		all = append(all, w)
	}
	for _, v := range c.given {
		if !slices.ContainsFunc(wanted, func(w Setting) bool { return w.Name == v.Name }) {
			all = append(all, Setting{Name: v.Name, Value: v.Value, Source: v.Source, Reason: c.unread(v)})
		}
	}
	return all
}

// unread returns a warning for NCCL's file of settings if --env names it: Detect has read only the one that the
// executor's environment names, and NCCL prefers variables of the environment to those of a file.
func (c *candidate) unread(v Variable) string {
	if v.Name != "NCCL_CONF_FILE" || slices.Contains(c.Own, v) {
		return ""
	}
	return "the file is not read: the variables that tfcluster sets win over it. Give its variables by --env, too"
}

// interfaceSettings has NCCL and gloo use the interface of the executor's address. NCCL would take the first one whose
// name begins with ib, then the first that is neither docker, lo nor virbr; gloo that of the host's name.
func (c *candidate) interfaceSettings() []Setting {
	name := c.Interface.Name
	if name == "" {
		return nil
	}
	why := "has the address " + c.Address + " in the cluster's specification"
	return []Setting{
		{Name: "NCCL_SOCKET_IFNAME", Value: "=" + name, Reason: name + " " + why},
		{Name: glooInterface, Value: name, Reason: name + " " + why},
	}
}

// tcpSettings keeps NCCL from RDMA. Unless the user asks for TCP, nothing is set where NCCL would find no port anyway,
// or where the user's NCCL_NET=IB has it fail if it cannot use RDMA.
func (c *candidate) tcpSettings(mode Mode, why string) []Setting {
	var settings []Setting
	if net, _ := c.find("NCCL_NET"); mode != TCP && strings.EqualFold(net.Value, "IB") {
		return nil
	}
	if mode == TCP || slices.ContainsFunc(c.Ports, func(p Port) bool { return p.active() }) {
		settings = append(settings, Setting{Name: "NCCL_IB_DISABLE", Value: "1", Reason: why})
	}
	if mode == TCP && slices.ContainsFunc(c.Ports, func(p Port) bool { return p.Link == EFA }) {
		settings = append(settings,
			Setting{Name: "NCCL_NET", Value: "Socket", Reason: why + "; a plugin may use EFA otherwise"})
	}
	return settings
}

func (c *candidate) rdmaSettings(link Link, mode Mode) []Setting {
	var settings []Setting
	if mode == RDMA {
		settings = append(settings,
			Setting{Name: "NCCL_NET", Value: "IB", Reason: "--fabric rdma: NCCL fails if it cannot use RDMA"})
	}
	if link != InfiniBand {
		settings = c.gidSettings(settings, link)
	}
	var names []string
	for _, p := range c.chosen {
		names = append(names, p.String())
	}
	if others := c.unwanted(); len(others) > 0 {
		settings = append(settings,
			Setting{Name: "NCCL_IB_HCA", Value: "=" + strings.Join(names, ","), Reason: "without " + strings.Join(others, "; ")})
	}
	return settings
}

// unwanted returns the ports that NCCL would use and that are not chosen, with the reasons.
func (c *candidate) unwanted() []string {
	var others []string
	for i := range c.Ports {
		p := &c.Ports[i]
		if !p.active() || slices.Contains(c.chosen, p) {
			continue
		}
		if p.Problem != "" {
			others = append(others, p.String()+": "+p.Problem)
			continue
		}
		for _, d := range c.dropped {
			if d.Port == p {
				others = append(others, d.String())
			}
		}
	}
	return others
}

// gidSettings adds the settings by which NCCL uses the wanted address of each RoCE port. Since 2.21 it takes the first
// of RoCE v2 and IPv4 itself. Before it took the one of index 0, which is that of RoCE v1 and the link; one index is
// then set for all ports, and ports with another one are dropped.
func (c *candidate) gidSettings(settings []Setting, link Link) []Setting {
	if _, own := c.find("NCCL_IB_GID_INDEX"); own {
		return settings
	}
	preferred := c.preferred()
	if choosesGID(c.NCCL) {
		return c.choiceSettings(settings, link, preferred)
	}
	index := c.commonIndex(link, preferred)
	c.dropIf(func(p *Port) string {
		if g := p.gid(link, preferred); g.Index != index {
			return fmt.Sprintf("its GID has index %d, and NCCL before 2.21 has one index for all ports", g.Index)
		}
		return ""
	})
	version := "NCCL " + c.NCCL
	if c.NCCL == "" {
		version = "NCCL's version is not known, and before 2.21 it"
	}
	g := c.chosen[0].gid(link, preferred)
	return append(settings, Setting{
		Name: "NCCL_IB_GID_INDEX", Value: strconv.Itoa(index), Reason: fmt.Sprintf(
			"%s takes index 0 otherwise; %s is %s with %s", version, c.chosen[0].String(), link, g.Prefix.Addr()),
	})
}

// commonIndex returns the index that most ports have, the first such.
func (c *candidate) commonIndex(link Link, preferred []netip.Prefix) int {
	count, best := map[int]int{}, -1
	for _, p := range c.chosen {
		count[p.gid(link, preferred).Index]++
	}
	for _, p := range c.chosen {
		if index := p.gid(link, preferred).Index; best < 0 || count[index] > count[best] {
			best = index
		}
	}
	return best
}

// choiceSettings adds the settings for an NCCL that chooses the GID, where it would choose another one.
func (c *candidate) choiceSettings(settings []Setting, link Link, preferred []netip.Prefix) []Setting {
	first := c.chosen[0].gid(link, preferred)
	if link == RoCE1 && slices.ContainsFunc(c.chosen, func(p *Port) bool { return p.gid(RoCE2, nil) != nil }) {
		settings = append(settings,
			Setting{Name: "NCCL_IB_ROCE_VERSION_NUM", Value: "1", Reason: "another executor has RoCE v1 only"})
	}
	if !first.Prefix.Addr().Is4() {
		reason := c.chosen[0].Netdev + " has no IPv4 address"
		if slices.ContainsFunc(c.chosen[0].GIDs, func(g GID) bool { return g.Prefix.Addr().Is4() }) {
			reason = "the executors share the subnet " + first.Prefix.Masked().String() + ", and none of IPv4"
		}
		return append(settings, Setting{Name: "NCCL_IB_ADDR_FAMILY", Value: "AF_INET6", Reason: reason})
	}
	within := first.Prefix.Masked()
	differs := false
	for _, p := range c.chosen {
		g := p.gid(link, preferred)
		if !within.Contains(g.Prefix.Addr()) {
			return settings // one range cannot hold them all
		}
		differs = differs || g != p.gid(link, nil)
	}
	if differs && wide(within) {
		settings = append(settings, Setting{
			Name: "NCCL_IB_ADDR_RANGE", Value: within.String(),
			Reason: "a port has addresses in several subnets, and the executors share this one",
		})
	}
	return settings
}

// choosesGID returns whether a version of NCCL chooses the GID itself; not if it is not known.
func choosesGID(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	minor, other := strconv.Atoi(parts[1])
	return err == nil && other == nil && (major > 2 || major == 2 && minor >= 21)
}
