// Package hosts gives a test several hosts on one machine: Linux namespaces, joined by a switch of their own. Each host
// has its own network, host name, users' and temporary folders, processes, shared memory and boot ID; all share a disk
// of programs, read-only. Cables can be cut, packets delayed, ports closed and names changed, as on real hosts.
//
// It needs root, or user namespaces for an unprivileged user; iproute2, nftables and util-linux.
package hosts
