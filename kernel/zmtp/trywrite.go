package zmtp

import (
	"net"
	"syscall"
)

// TryWrite returns a function that writes as much as the system accepts without blocking and
// returns the number of bytes, or nil if nc does not support that. An error is returned by the
// next ordinary write.
func TryWrite(nc net.Conn) func([]byte) int {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) int {
		n := 0
		err := rc.Write(func(fd uintptr) bool {
			n, _ = syscall.Write(int(fd), b) // the descriptor does not block; -1: nothing written
			return true
		})
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
}
