package fabric

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// place is where a device is in the machine.
type place struct {
	pci  []string // the host bridge, the bridges below it, and the device: pci0000:3a 0000:3a:00.0 0000:3b:00.0
	numa int      // -1: not known
}

// known returns whether it is the place of a PCI device.
func (p *place) known() bool { return len(p.pci) > 0 }

// Distances of two devices, the nearest first. nvidia-smi topo calls them PIX or PXB, PHB, NODE and SYS.
var distances = [...]string{
	"behind the same PCI bridge as its GPU", "at the same PCI host bridge as its GPU", "on the NUMA node of its GPU",
	"on another NUMA node than its GPU",
}

// nearest returns how near a device is to the nearest GPU.
func nearest(at place, gpus []place) string {
	best := len(distances)
	for _, g := range gpus {
		best = min(best, distance(at, g))
	}
	if best == len(distances) {
		return ""
	}
	return distances[best]
}

// distance returns the index in distances of two devices; len(distances): it is not known.
func distance(a, b place) int {
	if !a.known() || !b.known() {
		return len(distances)
	}
	shared := 0
	for shared < len(a.pci) && shared < len(b.pci) && a.pci[shared] == b.pci[shared] {
		shared++
	}
	switch {
	case shared > 1:
		return 0
	case shared == 1:
		return 1
	case a.numa < 0 || b.numa < 0:
		return len(distances)
	case a.numa == b.numa:
		return 2
	}
	return 3
}

// placeOf returns the place of the device whose folder in sysfs is a symbolic link.
func (h *Host) placeOf(link string) place {
	target, err := fs.ReadLink(h.Root, link)
	if err != nil {
		return place{numa: -1}
	}
	at := place{pci: pciPath(target), numa: -1}
	if n := len(at.pci); n > 0 {
		if node, err := strconv.Atoi(h.read("sys/bus/pci/devices/" + at.pci[n-1] + "/numa_node")); err == nil {
			at.numa = node
		}
	}
	return at
}

// pciPath returns the PCI addresses in the path of a device, beginning with the host bridge.
func pciPath(target string) []string {
	var found []string
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case isPCI(part) && len(found) > 0, strings.HasPrefix(part, "pci") && strings.Count(part, ":") == 1:
			found = append(found, part)
		}
	}
	if len(found) < 2 { // a host bridge alone is no device
		return nil
	}
	return found
}

// isPCI returns whether a name is an address like 0000:3b:00.0.
func isPCI(name string) bool {
	return len(name) >= len("0000:00:00.0") && strings.Count(name, ":") == 2 &&
		strings.Trim(name, "0123456789abcdef:.") == ""
}

// gpuPlaces returns the places of the executor's GPUs, as NVIDIA's driver tells them.
func (h *Host) gpuPlaces() []place {
	const dir = "proc/driver/nvidia/gpus"
	var places []place
	for _, address := range h.list(dir, maxDevices) {
		uuid := gpuUUID(h.read(path.Join(dir, address, "information")))
		if uuid != "" && slices.Contains(h.GPUs, uuid) {
			places = append(places, h.placeOf("sys/bus/pci/devices/"+address))
		}
	}
	return places
}

// gpuUUID returns the UUID in the driver's description of a GPU.
func gpuUUID(information string) string {
	for line := range strings.Lines(information) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "GPU UUID" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
