package memory

import (
	"fmt"
	"net"
	"os"

	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// Send writes a message to a unix socket and passes files with its first byte: see unixsock.Pass.
func Send(conn *net.UnixConn, message []byte, files ...*os.File) error {
	if _, err := unixsock.Pass(conn, message, files...); err != nil {
		return fmt.Errorf("pass %d descriptors of shared memory to another process: %w", len(files), err)
	}
	return nil
}

// Receive reads once from a unix socket: see unixsock.Receive.
func Receive(conn *net.UnixConn, buffer []byte) (n int, files []*os.File, err error) {
	n, files, err = unixsock.Receive(conn, buffer)
	if err != nil {
		return n, nil, fmt.Errorf("receive descriptors of shared memory from another process: %w", err)
	}
	return n, files, nil
}
