package client

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// TestLaunchCanceled: a driver is ended if the caller of Launch no longer waits for it. Not
// parallel: it sets the state folder.
func TestLaunchCanceled(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TFCLUSTER_HOME", dir)
	program, mark := filepath.Join(dir, "driver.sh"), filepath.Join(dir, "pid")
	script := "#!/bin/sh\necho $$ > " + mark + ".new && mv " + mark + ".new " + mark + "\nexec sleep 600\n"
	executable.Write(t, program, script)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var driver state.Process
	go func() { // ends with ctx at the latest
		defer cancel()
		for ctx.Err() == nil {
			if b, err := os.ReadFile(mark); err == nil {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
					driver = state.ProcessOf(pid)
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	c, err := Launch(ctx, program, &clusterpb.ReserveRequest{Name: "given-up", Backend: "local"})
	if err == nil {
		c.Close()
		t.Fatal("Launch succeeded without an answer of the driver")
	}
	if driver.PID == 0 {
		t.Fatal("the driver did not start")
	}
	defer func() {
		if p, err := os.FindProcess(driver.PID); err == nil && driver.Alive() {
			_ = p.Kill() // of a failed test
		}
	}()
	for end := time.Now().Add(time.Minute); driver.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the driver, process %d, still runs", driver.PID)
		}
	}
}
