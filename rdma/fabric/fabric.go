package fabric

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Link is a kind of network by which two executors exchange data.
type Link string

// Kinds of links.
const (
	InfiniBand Link = "InfiniBand"
	RoCE2      Link = "RoCE v2" // RDMA over Converged Ethernet in UDP packets, which are routed
	RoCE1      Link = "RoCE v1" // RDMA over Converged Ethernet in Ethernet frames, within one subnet
	IWARP      Link = "iWARP"
	EFA        Link = "EFA"      // Elastic Fabric Adapter
	Ethernet   Link = "Ethernet" // TCP
)

// verbs lists the kinds of links that NCCL's transport IB can use, the preferred one first.
var verbs = [...]Link{InfiniBand, RoCE2, RoCE1}

// Executor is the network of one executor, as Detect found it.
type Executor struct {
	Interface Interface // the one with the executor's address in the cluster's specification; without a name: not known
	Address   string    // that address
	Ports     []Port    // of its RDMA devices, by device and number
	Own       []Variable
	GPUs      int
	// PeerMemory says that a kernel module is loaded by which network adapters reach GPU memory (nvidia_peermem). The
	// other way, DMA-BUF, cannot be seen without the driver's library.
	PeerMemory bool
}

// Interface is a network interface.
type Interface struct {
	Name     string
	Prefixes []netip.Prefix // its addresses, each with the length of its subnet's prefix
	Rate     float64        // Gb/s; 0: not known
}

// Port is a port of an RDMA device.
type Port struct {
	Device string // mlx5_0
	Number int
	Link   Link    // "": not known
	State  string  // as sysfs says it: ACTIVE, DOWN, INIT, ARMED
	Rate   float64 // Gb/s
	Netdev string  // the network interface of a port of Ethernet
	GIDs   []GID   // of RoCE: the addresses with which it can be used, by their index
	Near   string  // how near it is to the executor's GPUs; "": there are none, or it is not known
	// Software says that the device is emulated by the kernel (rdma_rxe, siw).
	Software bool
	Layer    string // the link layer as NCCL sees it: InfiniBand, Ethernet or Unknown
	Problem  string // why it cannot be used; "": it can
	Remedy   string // what to do about it; "": nothing that is known
}

// String returns the port as NCCL_IB_HCA names it.
func (p *Port) String() string { return p.Device + ":" + strconv.Itoa(p.Number) }

// active returns whether NCCL uses the port unless it is told not to.
func (p *Port) active() bool {
	return p.State == stateActive && (p.Layer == string(InfiniBand) || p.Layer == string(Ethernet))
}

// has returns whether the port can be used as this kind of link.
func (p *Port) has(link Link) bool {
	switch {
	case p.Problem != "":
		return false
	case link == RoCE1 || link == RoCE2:
		return p.gid(link, nil) != nil
	}
	return p.Link == link
}

// GID is an address of a RoCE port.
type GID struct {
	Index   int
	Version int          // of RoCE: 1 or 2
	Prefix  netip.Prefix // with the length of the subnet's prefix; that of a single address if the subnet is not known
}

// Variable is a setting that somebody made.
type Variable struct {
	Name, Value string
	Source      string // "its environment", "/etc/nccl.conf", "--env of reserve"
}

// RateText returns a rate in Gb/s for people: "100 Gb/s"; "" if it is not known.
func RateText(rate float64) string {
	if rate <= 0 {
		return ""
	}
	return strconv.FormatFloat(rate, 'f', -1, 64) + " Gb/s"
}

// more returns a text for a list of which only the first element is shown.
func more(first string, n int) string {
	if n > 1 {
		return fmt.Sprintf("%s and %d more", first, n-1)
	}
	return first
}
