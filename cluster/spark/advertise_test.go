package spark

import (
	"net"
	"testing"
)

// TestAddressOf: a name with a loopback address is replaced for executors on other hosts. An address is used unchanged,
// and so is loopback for executors in this process.
func TestAddressOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, master string
		loopback     bool
	}{
		{"127.0.1.1", "yarn", true},
		{"localhost", "local[2]", true},
		{"localhost", "spark://127.0.0.1:7077", true},
		{"localhost", "yarn", !hasRoute(t)},
		{"10.9.8.7", "yarn", false},
	} {
		got, err := addressOf(t.Context(), tt.name, tt.master)
		if err != nil || net.ParseIP(got).IsLoopback() != tt.loopback {
			t.Errorf("of %s for %s: %s, %v; want loopback: %t", tt.name, tt.master, got, err, tt.loopback)
		}
	}
}

// hasRoute reports whether this machine has a route to other networks.
func hasRoute(t *testing.T) bool {
	t.Helper()
	_, err := routeAddress(t.Context(), anywhere)
	return err == nil
}
