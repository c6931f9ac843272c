package fabric

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Host is what Detect reads.
type Host struct {
	Root fs.FS // of the file system: sys, proc, etc; it may have symbolic links
	// Open opens a file below Root for reading and writing and closes it, as libibverbs opens a device.
	Open        func(name string) error
	Interfaces  []Interface
	Address     string   // the executor's in the cluster's specification: an IP address
	Environment []string // KEY=VALUE, as os.Environ returns it
	Memlock     uint64   // limit of locked memory in bytes; Unlimited
	GPUs        []string // UUIDs of the executor's GPUs
	User        string   // the number of the user in etc/passwd
}

// Unlimited is a limit of locked memory that no program reaches.
const Unlimited = ^uint64(0)

// leastMemlock is the limit of locked memory below which no RDMA device is used. NCCL registers buffers of about 10 MiB
// for each connection (NCCL_BUFFSIZE and those of its protocols LL and LL128), and opens several for each peer.
const leastMemlock = 64 << 20

// What Detect reads at most, against file systems that never end.
const (
	maxDevices = 256
	maxPorts   = 256 // of a device
	maxGIDs    = 1024
	maxFile    = 64 << 10
)

const (
	classInfiniBand = "sys/class/infiniband"
	stateActive     = "ACTIVE"
)

// Detect returns the network of an executor. A part that cannot be read is not known, or not there.
func Detect(h Host) Executor {
	x := Executor{Address: h.Address, Interface: h.ownInterface(), Own: h.own(), GPUs: len(h.GPUs)}
	devices := h.list(classInfiniBand, maxDevices)
	if len(devices) == 0 {
		return x
	}
	for _, module := range []string{
		"sys/module/nvidia_peermem/version", "sys/kernel/mm/memory_peers/nv_mem/version",
		"sys/kernel/mm/memory_peers/nv_mem_nc/version",
	} {
		if _, err := fs.Stat(h.Root, module); err == nil {
			x.PeerMemory = true
		}
	}
	gpus, nodes := h.gpuPlaces(), h.deviceFiles()
	for _, name := range devices {
		x.Ports = append(x.Ports, h.device(name, nodes[name], gpus)...)
	}
	return x
}

// ownInterface returns the interface with the executor's address.
func (h *Host) ownInterface() Interface {
	for _, i := range h.Interfaces {
		for _, p := range i.Prefixes {
			if p.Addr().String() == h.Address {
				i.Rate = h.interfaceRate(i.Name)
				return i
			}
		}
	}
	return Interface{}
}

// interfaceRate returns the rate of an interface in Gb/s; 0 if it is virtual or not known.
func (h *Host) interfaceRate(name string) float64 {
	mbits, err := strconv.ParseFloat(h.read("sys/class/net/"+name+"/speed"), 64)
	if err != nil || !(mbits > 0) || mbits >= 1<<32-1 { // an unknown speed is -1, of some drivers as an unsigned number
		return 0
	}
	return mbits / 1000
}

// device returns the ports of a device. file is its device file; "": it has none.
func (h *Host) device(name, file string, gpus []place) []Port {
	dir := path.Join(classInfiniBand, name)
	at := h.placeOf(dir)
	opened := h.openDevice(file)
	var ports []Port
	for _, number := range h.list(dir+"/ports", maxPorts) {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			continue
		}
		p := Port{
			Device: name, Number: n, Software: !at.known(), Near: nearest(at, gpus),
			State: parseState(h.read(dir + "/ports/" + number + "/state")),
			Rate:  parseRate(h.read(dir + "/ports/" + number + "/rate")),
			Layer: cmp.Or(h.read(dir+"/ports/"+number+"/link_layer"), "Unknown"),
		}
		h.classify(&p, h.read(dir+"/node_type"), dir)
		found := cmp.Or(problem{what: p.stateProblem()}, problem{p.Problem, p.Remedy}, opened, h.memlockProblem())
		p.Problem, p.Remedy = found.what, found.remedy
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return ports
}

// classify sets the kind of a port's link, its addresses, and the problem of a kind that cannot be used.
func (h *Host) classify(p *Port, nodeType, dir string) {
	node, _, _ := strings.Cut(nodeType, ":")
	switch {
	case node == "1" && p.Layer == string(InfiniBand):
		p.Link = InfiniBand
	case node == "1" && p.Layer == string(Ethernet):
		h.roce(p, path.Join(dir, "ports", strconv.Itoa(p.Number)))
	case node == "4":
		p.Link, p.Problem = IWARP, "iWARP connects by librdmacm, which NCCL does not use"
	case strings.EqualFold(h.read(dir+"/device/vendor"), vendorAmazon):
		p.Link, p.Problem = EFA, "NCCL uses EFA only by the plugin aws-ofi-nccl, for which nothing is set"
	default:
		p.Problem = "a device of type " + strconv.Quote(nodeType) + " with link layer " + strconv.Quote(p.Layer) +
			" is not known"
	}
}

// vendorAmazon is the PCI vendor of EFA devices.
const vendorAmazon = "0x1d0f"

// stateProblem returns why a port is not active.
func (p *Port) stateProblem() string {
	if p.State == stateActive {
		return ""
	}
	return "its state is " + cmp.Or(p.State, "not known")
}

// deviceFiles returns the device file of each device that has one.
func (h *Host) deviceFiles() map[string]string {
	files := map[string]string{}
	for _, name := range h.list("sys/class/infiniband_verbs", maxDevices) {
		if device := h.read("sys/class/infiniband_verbs/" + name + "/ibdev"); device != "" {
			files[device] = "dev/infiniband/" + name
		}
	}
	return files
}

// problem is why a port cannot be used, and what to do about it; empty: it can.
type problem struct{ what, remedy string }

// openDevice returns why a device file cannot be opened.
func (h *Host) openDevice(file string) problem {
	if file == "" {
		return problem{"it has no device file", "load the kernel module ib_uverbs"}
	}
	err := h.Open(file)
	switch {
	case err == nil:
		return problem{}
	case errors.Is(err, fs.ErrNotExist):
		return problem{"/" + file + " is not in this container", "give the container the devices of /dev/infiniband"}
	case errors.Is(err, fs.ErrPermission):
		return problem{
			"this user may not open /" +
				file, "let the user open it: by the file's group and mode, in a container by its rules for devices",
		}
	}
	return problem{what: "/" + file + " cannot be opened: " + err.Error()}
}

func (h *Host) memlockProblem() problem {
	if h.Memlock >= leastMemlock {
		return problem{}
	}
	return problem{
		"at most " + sizeText(h.Memlock) + " of memory may be locked",
		"raise the limit: ulimit -l unlimited, or LimitMEMLOCK=infinity of the service that starts executors, " +
			"such as YARN's NodeManager",
	}
}

// sizeText returns a size as ulimit and its users give it.
func sizeText(bytes uint64) string {
	if bytes < 1<<20 {
		return strconv.FormatUint(bytes>>10, 10) + " kB"
	}
	return strconv.FormatUint(bytes>>20, 10) + " MB"
}

// parseState returns the state of "4: ACTIVE".
func parseState(text string) string {
	_, state, _ := strings.Cut(text, ":")
	return strings.TrimSpace(state)
}

// parseRate returns the rate of "100 Gb/sec (4X EDR)" in Gb/s; 0 if there is none.
func parseRate(text string) float64 {
	number, unit, _ := strings.Cut(text, " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(rate > 0) || rate > 1e6 {
		return 0
	}
	return rate
}

// list returns the names in a folder, sorted.
func (h *Host) list(dir string, most int) []string {
	f, err := h.Root.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	folder, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	entries, _ := folder.ReadDir(most) // those that could be read
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// read returns the content of a file without spaces at its ends; "" if it cannot be read.
func (h *Host) read(name string) string {
	text, _ := h.readFile(name)
	return text
}

func (h *Host) readFile(name string) (string, error) {
	f, err := h.Root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), nil
}
