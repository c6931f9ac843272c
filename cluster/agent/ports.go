package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// heldPort reserves a TCP port for a task: it is bound with SO_REUSEPORT and SO_REUSEADDR but
// does not listen. The kernel assigns it to no other process, while a server that sets either
// option can bind it: TensorFlow with TF_GRPC_REUSE_PORT=true and gRPC set the former, PyTorch
// and most others the latter.
type heldPort struct {
	fd   int
	port int32
}

func holdPort() (*heldPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port for a task: %w", err)
	}
	h := &heldPort{fd: fd}
	if err := h.bind(); err != nil {
		h.release()
		return nil, fmt.Errorf("reserve a port for a task: %w", err)
	}
	return h, nil
}

func (h *heldPort) bind() error {
	for _, option := range []int{unix.SO_REUSEPORT, unix.SO_REUSEADDR} {
		if err := unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(h.fd, &unix.SockaddrInet4{}); err != nil {
		return err
	}
	bound, err := unix.Getsockname(h.fd)
	if err != nil {
		return err
	}
	h.port = int32(bound.(*unix.SockaddrInet4).Port)
	return nil
}

// release closes the port. It may be called again, and on nil.
func (h *heldPort) release() {
	if h != nil && h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}
