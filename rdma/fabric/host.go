package fabric

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisHost returns what Detect reads on this machine, with the file system below root. The limit of locked memory is
// this process's, which its children inherit.
func ThisHost(root, address string, gpus []string) Host {
	return Host{
		Root: os.DirFS(root), Open: func(name string) error { return openFile(filepath.Join(root, name)) },
		Interfaces: interfaces(), Address: address, Environment: os.Environ(), Memlock: memlock(), GPUs: gpus,
		User: strconv.Itoa(os.Getuid()),
	}
}

// openFile opens a device file for a moment. Nothing is asked of the device.
func openFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// interfaces returns the network interfaces that are up; none if they cannot be listed.
func interfaces() []Interface {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var found []Interface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		entry := Interface{Name: i.Name}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				entry.Prefixes = append(entry.Prefixes, p)
			}
		}
		found = append(found, entry)
	}
	return found
}

// memlock returns how much memory this process may lock, in bytes.
func memlock() uint64 {
	var limit unix.Rlimit
	status, _ := os.ReadFile("/proc/self/status")   // "": without capabilities
	mapping, _ := os.ReadFile("/proc/self/uid_map") // "": not in the first user namespace
	if mayLock(status, mapping) || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return Unlimited
	}
	return limit.Cur
}

// capIPCLock is the number of the capability to lock memory without a limit.
const capIPCLock = 14

// mayLock returns whether a process with this status has CAP_IPC_LOCK in the first user namespace: in others the kernel
// does not regard it when memory is registered.
func mayLock(status, mapping []byte) bool {
	fields := strings.Fields(string(mapping))
	if len(fields) != 3 || fields[0] != "0" || fields[1] != "0" || fields[2] != "4294967295" {
		return false
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if hex, found := strings.CutPrefix(lines.Text(), "CapEff:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<capIPCLock) != 0
		}
	}
	return false
}
