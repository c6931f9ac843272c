package agent

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHeldPort: a server that sets either option binds a port that is held for it, one
// that sets none is refused.
func TestHeldPort(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]int{
		"SO_REUSEPORT": unix.SO_REUSEPORT, "SO_REUSEADDR": unix.SO_REUSEADDR, "neither": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held, err := holdPort()
			if err != nil {
				t.Fatal(err)
			}
			defer held.release()
			config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				var set error
				err := c.Control(func(fd uintptr) {
					for _, o := range []int{unix.SO_REUSEPORT, unix.SO_REUSEADDR} { // Go sets the latter by itself
						if set == nil {
							on := 0
							if o == option {
								on = 1
							}
							set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o, on)
						}
					}
				})
				if err == nil {
					err = set
				}
				return err
			}}
			address := fmt.Sprintf("127.0.0.1:%d", held.port)
			server, err := config.Listen(context.Background(), "tcp4", address)
			if option == 0 {
				if err == nil {
					server.Close()
					t.Error("the port was not held")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			conn, err := net.Dial("tcp4", address)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
}
