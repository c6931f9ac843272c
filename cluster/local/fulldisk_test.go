package local_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// smallDisk mounts a file system of that size.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		t.Skipf("missing: the permission to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill writes a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk: while the disk of --dir is full, the client of a run gets every line. Afterwards the store
// has all lines from before and after, and the number of missing ones.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk, signs := smallDisk(t, 8<<20), t.TempDir()
	c := harness(t).Start(t, "worker=1", func(r *clusterpb.ReserveRequest) { r.Dir = filepath.Join(disk, "runs") })
	r := c.Script(fmt.Sprintf(`
import os, time
n = 0
def write(until):
    global n
    while not os.path.exists(os.path.join(%q, until)):
        print("line", n, flush=True)
        n += 1
        time.sleep(0.002)
write("full"); print("it is full", flush=True)
write("free"); print("it is free", flush=True)
write("over")
`, signs))
	sign := func(name string) {
		if err := os.WriteFile(filepath.Join(signs, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Line("line 100")
	fill(t, filepath.Join(disk, "filler"))
	sign("full")
	r.Line("it is full")
	seen := strings.Count(r.Text(), "\n")
	clustertest.WaitFor(t, "lines while the disk is full",
		func() bool { return strings.Count(r.Text(), "\n") > seen+1000 })
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the message that output is written again",
		func() bool { return strings.Contains(r.Notes(), "task output is written again") })
	sign("free")
	r.Line("it is free")
	seen = strings.Count(r.Text(), "\n")
	clustertest.WaitFor(t, "more lines", func() bool { return strings.Count(r.Text(), "\n") > seen+100 })
	sign("over")
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	all := strings.Split(strings.ReplaceAll(r.Text(), "[worker:0] ", ""), "\n")
	n := 0
	for _, line := range all {
		if want := fmt.Sprint("line ", n); line == want {
			n++
		} else if !strings.HasPrefix(line, "it is") {
			t.Fatalf("the client got %q, want %q", line, want)
		}
	}
	before, gap, after := storedLines(t, c)
	missing := len(all) - len(before) - len(after)
	if missing < 900 ||
		!strings.HasPrefix(gap, fmt.Sprintf("worker:0: %d lines were not kept: no space left on device, ", missing)) {
		t.Errorf("of %d lines %d and %d are kept, around %q", len(all), len(before), len(after), gap)
	}
	if strings.Join(before, "\n") != strings.Join(all[:len(before)], "\n") ||
		strings.Join(after, "\n") != strings.Join(all[len(before)+missing:], "\n") {
		t.Errorf("the stored lines are not those before and after the gap:\n%s\n…\n%s", strings.Join(before, "\n"),
			strings.Join(after, "\n"))
	}
	if strings.Count(r.Notes(), "task output cannot be written") != 1 {
		t.Errorf("the notes are %q", r.Notes())
	}
}

// storedLines returns the stored lines of a run before and after the gap.
func storedLines(t *testing.T, c *clustertest.Cluster) (before []string, gap string, after []string) {
	t.Helper()
	s, err := c.Client.Logs(t.Context(), &clusterpb.LogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		u, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return before, gap, after
		}
		if err != nil {
			t.Fatal(err)
		}
		if u.GetGap() != "" && gap != "" {
			t.Errorf("there is another gap: %q", u.GetGap())
		}
		gap += u.GetGap()
		for _, l := range u.GetLines() {
			if gap == "" {
				before = append(before, l.GetText())
			} else {
				after = append(after, l.GetText())
			}
		}
	}
}
