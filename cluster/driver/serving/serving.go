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

// Serve answers whom, such as clients, until the server is stopped.
func Serve(whom string, s *grpc.Server, ln net.Listener) error {
	if err := s.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", whom, err)
	}
	return nil
}

// Stop ends a server. Calls that do not end by themselves are cut off after a moment.
func Stop(s *grpc.Server) {
	t := time.AfterFunc(stopLimit, s.Stop)
	defer t.Stop()
	s.GracefulStop()
}
