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

// TestSimulation: the simulated agents live through a cluster's whole life.
func TestSimulation(t *testing.T) {
	f, err := measure(t.Context(), 12)
	if err != nil {
		t.Fatal(err)
	}
	if f.Agents != 12 || f.Lines != 12 || f.ReadyRSS == 0 || f.EnteredBytes == 0 {
		t.Errorf("it measured %+v", f)
	}
}
