package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cut lets no packet pass between a host and the others that are named, in silence, as a broken router does.
func (h *Hosts) Cut(name string, others ...string) {
	h.t.Helper()
	rules := "add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }"
	for _, other := range others {
		rules += fmt.Sprintf("; add rule bridge cut forward iifname %[1]s oifname %[2]s drop; "+
			"add rule bridge cut forward iifname %[2]s oifname %[1]s drop", name, other)
	}
	h.must(h.inside(h.network, "nft", rules))
}

// Heal ends every cut.
func (h *Hosts) Heal() {
	h.t.Helper()
	h.must(h.inside(h.network, "nft", "add table bridge cut; delete table bridge cut"))
}

// Down pulls the cable of a host; Up plugs it in again.
func (h *Hosts) Down(name string) {
	h.t.Helper()
	h.must(h.ip("link", "set", "dev", name, "down"))
}

// Up plugs the cable of a host in again.
func (h *Hosts) Up(name string) {
	h.t.Helper()
	h.must(h.ip("link", "set", "dev", name, "up"))
}

// Firewall drops new TCP connections to a host, but to these ports, in the syntax of nft: 22,7000-7009.
func (h *Hosts) Firewall(name, ports string) {
	h.t.Helper()
	rules := []string{
		"add table inet firewall", "add chain inet firewall in { type filter hook input priority 0; }",
		"add rule inet firewall in iifname lo accept", "add rule inet firewall in ct state established,related accept",
	}
	if ports != "" {
		rules = append(rules, "add rule inet firewall in tcp dport { "+ports+" } accept")
	}
	rules = append(rules, "add rule inet firewall in meta l4proto tcp drop")
	h.must(h.inside(h.nodes[name], "nft", strings.Join(rules, "; ")))
}

// NoFirewall ends a host's firewall.
func (h *Hosts) NoFirewall(name string) {
	h.t.Helper()
	h.must(h.inside(h.nodes[name], "nft", "delete table inet firewall"))
}

// Names sets the contents of a host's /etc/hosts.
func (h *Hosts) Names(name, text string) {
	h.t.Helper()
	h.must(os.WriteFile(filepath.Join(h.nodes[name].disk, "etc/hosts"), []byte(text), 0o644))
}

// Interface gives a host another network interface with an address, as a cluster's second network has it.
func (h *Hosts) Interface(name, device, address string) {
	h.t.Helper()
	n := h.nodes[name]
	outer := fmt.Sprintf("%s-%s", name, device)
	h.must(h.ip("link", "add", "name", outer, "type", "veth", "peer", "name", device, "netns", fmt.Sprint(n.pid)))
	h.must(h.ip("link", "set", "dev", outer, "master", "br0", "up"))
	h.must(h.inside(n, "ip", "link", "set", device, "up"))
	h.must(h.inside(n, "ip", "addr", "add", address, "dev", device))
}

// Join connects this machine with the network of the hosts, and returns its address there. It needs root.
func (h *Hosts) Join() string {
	h.t.Helper()
	if h.outer != nil {
		skip(h.t, "missing: root, to connect this machine with hosts")
	}
	device, address := fmt.Sprintf("hosts-%d", h.id), h.address(254)
	here := &node{name: "this machine", pid: os.Getpid()}
	h.must(h.ip("link", "add", "name", "this", "type", "veth", "peer", "name", device, "netns", fmt.Sprint(here.pid)))
	h.must(h.ip("link", "set", "dev", "this", "master", "br0", "up"))
	h.must(h.inside(here, "ip", "addr", "add", address+"/24", "dev", device))
	h.must(h.inside(here, "ip", "link", "set", "dev", device, "up"))
	return address
}

// Enter returns the words before a program of this machine that put it into the network and among the files of a host.
// It keeps its process ID, so a process of this machine can be its parent.
func (h *Hosts) Enter(name string) []string {
	return append(slices.Clone(h.outer), "nsenter", "-t", strconv.Itoa(h.nodes[name].pid), "-m", "-n", "--")
}

// Delay passes each packet to and from a host later, and loses some: loss is a part of 1. The kernel's own means for
// it, netem, is absent from many kernels. It needs root.
func (h *Hosts) Delay(name string, delay time.Duration, loss float64) {
	h.t.Helper()
	if h.outer != nil {
		skip(h.t, "missing: root, to delay packets")
	}
	host, inner, outer := name, "d-"+name, "e-"+name
	h.must(h.ip("link", "set", "dev", host, "nomaster"))
	h.must(h.ip("link", "add", "name", inner, "type", "veth", "peer", "name", outer))
	h.must(h.ip("link", "set", "dev", inner, "up"))
	h.must(h.ip("link", "set", "dev", outer, "master", "br0", "up"))
	r, err := newRelay(h.network.pid, host, inner, delay, loss)
	h.must(err)
	h.relays[name] = r
}

// NoDelay ends the delay of a host.
func (h *Hosts) NoDelay(name string) {
	h.t.Helper()
	h.relays[name].stop()
	delete(h.relays, name)
	h.must(h.ip("link", "del", "dev", "d-"+name))
	h.must(h.ip("link", "set", "dev", name, "master", "br0"))
}

func (h *Hosts) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}
