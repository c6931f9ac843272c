package results

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/atomicfile"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// recordReader reads records, also those of a later version that say more.
var recordReader = protojson.UnmarshalOptions{DiscardUnknown: true}

// RecordFile is a run's record, in its folder.
const RecordFile = "run.json"

// Interrupted is whether a run is one that its driver's death ended.
func Interrupted(st *clusterpb.RunStatus) bool {
	return st.GetFailure().GetKind() == "lost" && st.GetEndedUnix() == 0
}

// readRecord is a run of which a driver that is no more wrote a record, or none. Where it
// is not of the run's end, the driver did not see that.
func readRecord(run int32, text []byte) *clusterpb.RunStatus {
	st := &clusterpb.RunStatus{}
	if recordReader.Unmarshal(text, st) != nil {
		st = &clusterpb.RunStatus{}
	}
	st.Id = run
	if !slices.Contains([]string{cluster.RunFinished, cluster.RunFailed, cluster.RunStopped}, st.GetState()) {
		st.State, st.EndedUnix = cluster.RunFailed, 0
		st.Failure = &clusterpb.Failure{
			Kind: "lost", ExitCode: 1, Summary: "the cluster's driver died during the run; its tasks were ended",
			Remedy: "%tfcluster start --resume goes on from the last checkpoint",
		}
	}
	return st
}

// ReadRun reads the record of a run below a directory of this host. Without a file it is
// that of a run whose driver died before it was recorded.
func ReadRun(dir string, run int32) (*clusterpb.RunStatus, error) {
	b, err := os.ReadFile(filepath.Join(rundir.Dir(dir, run), RecordFile))
	return readRecord(run, b), err
}

// WriteRun writes the record of a run into the run's folder.
func WriteRun(folder string, st *clusterpb.RunStatus) error {
	text, err := clusterpb.ToJSON(st, false)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(folder, RecordFile), b.Bytes())
}

// KeepReprs replaces the values of a status with their reprs. The results that the status
// had may be shared: they are not changed.
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

// reprOf is a result's repr alone; nil for nil.
func reprOf(r *clusterpb.TaskResult) *clusterpb.TaskResult {
	if r == nil {
		return nil
	}
	return &clusterpb.TaskResult{Repr: r.GetRepr()}
}

// Place gives a run's record the places of its files below a directory.
func Place(st *clusterpb.RunStatus, root string) {
	dir := rundir.Dir(root, st.GetId())
	st.Dir, st.LogDir, st.CheckpointDir, st.ExportDir = dir, rundir.Join(dir, "logs"), rundir.Join(dir, "checkpoints"), rundir.Join(dir, "export")
}
