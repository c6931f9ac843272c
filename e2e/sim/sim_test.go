package main

import (
	"context"
	"os"
	"testing"
)

// TestMain is the driver where a simulation has started this program as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "driver" {
		if runDriver(context.Background()) != nil {
			os.Exit(1) // its log has the reason
		}
		return
	}
	os.Exit(m.Run())
}

// TestSimulation: the simulated agents live through a cluster's whole life. Each is sent
// the addresses of all once.
func TestSimulation(t *testing.T) {
	const n = 200
	f, err := measure(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if f.Agents != n || f.Lines != n || f.ReadyRSS == 0 || f.EnteredBytes == 0 {
		t.Errorf("it measured %+v", f)
	}
	spec := n * int64(len(`"10.11.12.13:20000",`))
	if each := f.EnteredBytes / n; each > 2*spec {
		t.Errorf("an agent got %d bytes at a start, the addresses are %d", each, spec)
	} else {
		t.Logf("an agent got %d bytes at a start, the addresses are %d", each, spec)
	}
}
