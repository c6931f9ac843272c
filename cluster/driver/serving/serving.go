// Package serving runs gRPC servers to their end.
package serving

import (
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
)

// stopLimit is how long calls have to end once a server is stopped.
const stopLimit = 500 * time.Millisecond

// Serve serves until the server is stopped. name, such as "executors", is for the error.
func Serve(name string, s *grpc.Server, ln net.Listener) error {
	if err := s.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("accept connections of %s: %w", name, err)
	}
	return nil
}

// Stop ends a server and waits. Calls that have not ended after 500 ms are cut off.
func Stop(s *grpc.Server) {
	t := time.AfterFunc(stopLimit, s.Stop)
	defer t.Stop()
	s.GracefulStop()
}
