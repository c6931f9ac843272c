package results

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/internal/atomicfile"
)

// RecordFile is the name of a run's record in the run's folder.
const RecordFile = "run.json"

// ManifestFile is the name of what a run's tasks ran with, in the run's folder.
const ManifestFile = rundir.Manifest

// Interrupted reports whether a run was interrupted by the death of its driver.
func Interrupted(st *clusterpb.RunStatus) bool {
	return st.GetFailure().GetKind() == "lost" && st.GetEndedUnix() == 0
}

// readRecord returns the status of a run from its record, which may be missing. If the record
// is not final, the driver died during the run.
func readRecord(run int32, text []byte) *clusterpb.RunStatus {
	st := &clusterpb.RunStatus{}
	if clusterpb.FromJSON(text, st) != nil {
		st = &clusterpb.RunStatus{}
	}
	st.Id = run
	if !slices.Contains([]string{cluster.RunFinished, cluster.RunFailed, cluster.RunStopped}, st.GetState()) {
		st.State, st.EndedUnix = cluster.RunFailed, 0
		st.Failure = &clusterpb.Failure{
			Kind: "lost", ExitCode: 1, Summary: "the cluster's driver died during the run; its tasks were ended",
			Remedy: "%tfcluster start --resume continues from the last checkpoint",
		}
	}
	return st
}

// ReadRun reads the record of a run in a local directory. If there is no record, it returns the
// status of an interrupted run and the error.
func ReadRun(dir string, run int32) (*clusterpb.RunStatus, error) {
	b, err := os.ReadFile(filepath.Join(rundir.Dir(dir, run), RecordFile))
	return readRecord(run, b), err
}

// WriteRun writes the record of a run into the run's folder.
func WriteRun(folder string, st *clusterpb.RunStatus) error { return write(folder, RecordFile, st) }

// WriteManifest writes what a run's tasks ran with into the run's folder.
func WriteManifest(folder string, m *clusterpb.RunManifest) error {
	return write(folder, ManifestFile, m)
}

func write(folder, name string, m proto.Message) error {
	text, err := clusterpb.ToJSON(m, false)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(folder, name), b.Bytes())
}

// ReadManifests reads the manifests of runs, as far as they exist.
func ReadManifests(ctx context.Context, f Folder, runs []int32) (map[int32]*clusterpb.RunManifest, error) {
	found := map[int32]*clusterpb.RunManifest{}
	for _, run := range runs {
		m, err := ReadManifest(ctx, f, run)
		if err != nil {
			return nil, err
		}
		if m != nil {
			found[run] = m
		}
	}
	return found, nil
}

// ReadManifest reads what a run's tasks ran with. It returns nil without an error if there is no such file, as in
// runs of earlier versions and in runs that were not entered.
func ReadManifest(ctx context.Context, f Folder, run int32) (*clusterpb.RunManifest, error) {
	b, err := logstore.ReadFile(ctx, f, path.Join(rundir.Name(run), ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := &clusterpb.RunManifest{}
	if err == nil {
		if err = clusterpb.FromJSON(b, m); err != nil {
			err = fmt.Errorf("%s is damaged (%w): remove it to compare only arguments and results",
				path.Join(rundir.Name(run), ManifestFile), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest of run %d: %w", run, err)
	}
	return m, nil
}

// KeepReprs replaces the values in a status by their reprs. It does not modify the results
// themselves, which may be shared.
func KeepReprs(st *clusterpb.RunStatus) {
	st.Result = reprOf(st.GetResult())
	results := st.GetResults()
	if results == nil {
		return
	}
	st.Results = make(map[string]*clusterpb.TaskResult, len(results))
	for task, r := range results {
		st.Results[task] = reprOf(r)
	}
}

// reprOf returns a result with only the repr; nil for nil.
func reprOf(r *clusterpb.TaskResult) *clusterpb.TaskResult {
	if r == nil {
		return nil
	}
	return &clusterpb.TaskResult{Repr: r.GetRepr()}
}

// Place sets the paths in a run's status to those below a directory.
func Place(st *clusterpb.RunStatus, root string) {
	dir := rundir.Dir(root, st.GetId())
	st.Dir, st.LogDir, st.CheckpointDir, st.ExportDir = dir, rundir.Join(dir, "logs"), rundir.Join(dir, "checkpoints"),
		rundir.Join(dir, "export")
}
