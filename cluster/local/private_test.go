package local_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/local"
)

// separateDisks makes a reservation's agents store a run's files and send them, as on executors that share
// no disk with the driver.
func separateDisks(t *testing.T) func(*clusterpb.ReserveRequest) {
	t.Helper()
	wrapper := filepath.Join(t.TempDir(), "tfcluster")
	const script = `#!/bin/sh
config=$(mktemp) && sed 's/"shared_dir": *"[^"]*"/"shared_dir":""/' >"$config" &&
	exec 3<"$config" && rm "$config" && exec %s "$@" <&3 3<&-
`
	executable.Write(t, wrapper, fmt.Appendf(nil, script, clustertest.Program(t)))
	return func(r *clusterpb.ReserveRequest) { r.Engine = map[string]string{local.AgentProgram: wrapper} }
}

// TestPrivateResults: only the owner can read what a cluster writes to its directory, also if executors
// have separate disks. The mode of an existing directory is not changed.
func TestPrivateResults(t *testing.T) {
	t.Parallel()
	for name, disks := range map[string]func(*clusterpb.ReserveRequest){
		"shared": func(*clusterpb.ReserveRequest) {}, "apart": separateDisks(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			if err := os.Chmod(shared, 0o755); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(shared, "runs", "mine")
			c := harness(t).Start(t, "worker=1", func(r *clusterpb.ReserveRequest) { r.Dir = dir }, disks)
			const writing = "import os, tfcluster\nctx = tfcluster.context()\nprint('here')\n" +
				"open(os.path.join(ctx.checkpoint_dir, 'ckpt-1'), 'w').close()\n"
			c.Script(writing).Wait()
			if st := c.Script(writing, func(s *clusterpb.StartRequest) { s.Options.Resume = "last" }).Wait(); st.GetState() !=
				"finished" {
				t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
			}
			c.End()
			seen := map[string]bool{}
			err := filepath.WalkDir(filepath.Join(shared, "runs"), func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				seen[e.Name()] = true
				want := fs.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if program := e.Name() == "ckpt-1" && name == "shared"; info.Mode().Perm() != want && !program {
					t.Errorf("%s is %v", path, info.Mode())
				}
				return nil
			})
			if err != nil || !seen["run.json"] || !seen["000000000000.log"] || !seen["checkpoints"] || !seen["ckpt-1"] {
				t.Errorf("the files are %v: %v", seen, err)
			}
			if info, err := os.Stat(shared); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("the existing directory is %v: %v", info.Mode(), err)
			}
		})
	}
}
