package main

import (
	"context"
	"os"
	"testing"
)

// TestMain is also the driver, which a simulation starts from this binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "driver" {
		if runDriver(context.Background()) != nil {
			os.Exit(1) // the error is in its log
		}
		return
	}
	os.Exit(m.Run())
}

// TestSimulation simulates the whole life of a cluster. Each agent must receive the addresses of all tasks
// only once.
func TestSimulation(t *testing.T) {
	const n = 200
	f, err := measure(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if f.Agents != n || f.Lines != n || f.ReadyRSS == 0 || f.EnteredBytes == 0 {
		t.Errorf("the figures are %+v", f)
	}
	spec := n * int64(len(`"10.11.12.13:20000",`))
	if each := f.EnteredBytes / n; each > 2*spec {
		t.Errorf("an agent got %d bytes at a start, the addresses are %d", each, spec)
	} else {
		t.Logf("an agent got %d bytes at a start, the addresses are %d", each, spec)
	}
}
