package zmtp

import (
	"net"
	"syscall"
)

// TryWrite returns a function that writes what the system takes at once and says how many
// bytes that was, or nil where that cannot be done. An error shows at the next ordinary write.
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
			n, _ = syscall.Write(int(fd), b) // the descriptor does not block; -1 is nothing written
			return true
		})
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
}
