package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/clustertest/hosts"
	"github.com/tfcluster/tfcluster/cluster/local"
)

// isolatedAgent replaces the binary: an agent runs on a host that shares no folder with the driver.
const isolatedAgent = `#!/bin/sh
[ "$1" = agent ] || exec %[1]s "$@"
exec %[2]s unshare --mount sh -ec '
  mount -t proc proc /proc; mount -t tmpfs none /mnt
  mkdir /mnt/bin /mnt/work; cp %[1]s /mnt/bin/tfcluster; cd /mnt/work
  %[3]s -c "import json, sys
c = json.load(sys.stdin)
c[\"address\"] = \"\"
c[\"folders\"].update(shared_dir=\"\", runtime_dir=\"/mnt/run\")
json.dump(c, open(\"/mnt/config\", \"w\"))"
  export TFCLUSTER_CACHE=/mnt/environments
  exec /mnt/bin/tfcluster agent </mnt/config'
`

// isolated starts a host for a test's agents. It returns a change that makes a reservation use it, and its address.
func isolated(t *testing.T, python string) (change func(*clusterpb.ReserveRequest), address string) {
	t.Helper()
	program := clustertest.Program(t)
	h := hosts.New(t, []string{filepath.Dir(program), filepath.Dir(filepath.Dir(python))}, "executors")
	here := h.Join()
	wrapper := filepath.Join(t.TempDir(), "tfcluster")
	enter := strings.Join(h.Enter("executors"), " ")
	executable.Write(t, wrapper, fmt.Appendf(nil, isolatedAgent, program, enter, python))
	return func(r *clusterpb.ReserveRequest) {
		r.Advertise, r.Engine = here, map[string]string{local.AgentProgram: wrapper}
	}, h.Address("executors")
}

// savingProgram is the beginning of a program whose first worker saves checkpoints in TensorFlow's format,
// and whose evaluator reads them.
const savingProgram = `
import os, pathlib, signal, sys, time, tfcluster
ctx = tfcluster.context()
folder = pathlib.Path(ctx.checkpoint_dir)
first, again = ctx.is_chief, (folder / "checkpoint").exists()

def save(n):
    (folder / f"ckpt-{n}.data-00000-of-00001").write_text(str(n) * 100_000)
    (folder / f"ckpt-{n}.index").write_text(str(n))
    state = f'model_checkpoint_path: "ckpt-{n}"\n'
    state += "".join(f'all_model_checkpoint_paths: "ckpt-{i}"\n' for i in range(max(1, n - 1), n + 1))
    (folder / "checkpoint.tmp0").write_text(state)
    (folder / "checkpoint.tmp0").rename(folder / "checkpoint")
    for old in folder.glob(f"ckpt-{n - 2}.*"):
        old.unlink()

def held():
    return sorted(p.name for p in folder.iterdir())

if ctx.job_name == "evaluator":
    for path in ctx.checkpoints():
        content = pathlib.Path(path + ".data-00000-of-00001").read_text()
        print("evaluated", os.path.basename(path), len(content), flush=True)
    sys.exit()
`

// TestNothingShared: the executors are on a host that shares no disk with the driver's. The tasks' files are copied to
// the driver and back.
func TestNothingShared(t *testing.T) {
	t.Parallel()
	h := harness(t)
	change, there := isolated(t, h.Python)
	c := h.Start(t, "worker=2 evaluator=1", change)
	for _, part := range []struct {
		name string
		test func(*testing.T, *clustertest.Cluster)
	}{
		{"events", func(t *testing.T, c *clustertest.Cluster) { copiesEvents(t, c, there) }},
		{"checkpoints", copiesCheckpoints},
		{"restart", restartsFromCheckpoint},
		{"resume", resumesCheckpoint},
		{"lost", replacesLostExecutor},
		{"keras", kerasResumes},
	} {
		t.Run(part.name, func(t *testing.T) {
			of := *c
			of.T = t
			part.test(t, &of)
		})
	}
	t.Run("shipped", func(t *testing.T) { clustertest.Shipped(t, h, false, "/mnt/environments/", change) })
	t.Run("another Python", func(t *testing.T) { clustertest.AnotherPython(t, h, change) })
}

func ownWorkingDir(s *clusterpb.StartRequest) { s.Options.WorkingDir = "" }

func requireFinished(t *testing.T, r *clustertest.Run) {
	t.Helper()
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v\n%s\n%s", st.GetState(), st.GetFailure(), r.Text(), r.Notes())
	}
}

// checkFiles fails the test if a folder of a run on the driver's host does not have exactly these files, or
// if a partial file is left.
func checkFiles(t *testing.T, run *clusterpb.RunStatus, folder string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(run.GetDir(), folder))
	if err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Errorf("%s holds %q, want %q", folder, got, names)
	}
	if parts, _ := filepath.Glob(filepath.Join(run.GetDir(), ".part-*")); len(parts) > 0 {
		t.Errorf("partial files are left: %q", parts)
	}
}

// awaitCheckpoint waits for a run's first checkpoint.
func awaitCheckpoint(t *testing.T, r *clustertest.Run) {
	t.Helper()
	state := filepath.Join(r.Now().GetCheckpointDir(), "checkpoint")
	clustertest.WaitFor(t, state, func() bool { _, err := os.Stat(state); return err == nil })
}

func copiesEvents(t *testing.T, c *clustertest.Cluster, there string) {
	r := c.Script(`
import os, pathlib, socket, sys, tfcluster
ctx = tfcluster.context()
if ctx.job_name == "evaluator": sys.exit()
print("I am at", ctx.cluster_spec["worker"][ctx.task_index], file=sys.stderr)
pathlib.Path(ctx.log_dir, "events.out.tfevents.1." + str(ctx.task_index)).write_bytes(b"x" * 100_000)
data = pathlib.Path("/mnt/data")
data.mkdir()
for i in range(3): (data / str(i)).write_text(str(i))
print(ctx.task_index, "reads", [pathlib.Path(p).read_text() for p in ctx.local_copy("/mnt/data")], file=sys.stderr)
`, ownWorkingDir)
	requireFinished(t, r)
	for _, want := range []string{"I am at " + there + ":", "0 reads ['0', '2']", "1 reads ['1']"} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q:\n%s", want, r.Text())
		}
	}
	for i := range 2 {
		path := filepath.Join(r.Now().GetLogDir(), fmt.Sprintf("events.out.tfevents.1.%d", i))
		if fi, err := os.Stat(path); err != nil || fi.Size() != 100_000 {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
}

// copiesCheckpoints: at the end of the run all files are complete, and no others are left. The evaluator
// has seen checkpoints before.
func copiesCheckpoints(t *testing.T, c *clustertest.Cluster) {
	r := c.Script(savingProgram+`
(folder / "both").write_text("of worker " + str(ctx.task_index))
evaluated = [] # an Event has a lock, which the main thread may hold when the handler is called
signal.signal(signal.SIGUSR2, lambda *_: evaluated.append(True))
if first:
    save(1)
    while not evaluated: time.sleep(.01)
    for n in range(2, 6): save(n)
    export = pathlib.Path(ctx.export_dir, "variables")
    export.mkdir()
    (export / "variables.index").write_text("index")
    (export.parent / "saved_model.pb").write_text("model")
else:
    pathlib.Path(ctx.dir, "predictions-1.csv").write_text("1,2,3")
`, ownWorkingDir)
	r.Line("evaluated ckpt-1 100000")
	c.Signal("worker:0", syscall.SIGUSR2)
	requireFinished(t, r)
	st := r.Now()
	checkFiles(t, st, "checkpoints", "both", "checkpoint", "ckpt-4.data-00000-of-00001", "ckpt-4.index",
		"ckpt-5.data-00000-of-00001", "ckpt-5.index")
	checkFiles(t, st, "export", "saved_model.pb", "variables")
	for path, want := range map[string]string{
		"checkpoints/both": "of worker 0", "predictions-1.csv": "1,2,3", "export/saved_model.pb": "model",
	} {
		if b, err := os.ReadFile(filepath.Join(st.GetDir(), path)); string(b) != want {
			t.Errorf("%s is %q, %v", path, b, err)
		}
	}
	if want := "evaluated ckpt-5 100000"; !strings.Contains(r.Text(), want) {
		t.Errorf("no %q:\n%s", want, r.Text())
	}
}

// restartsFromCheckpoint: the checkpoint of a killed task is available to every task of the next attempt.
func restartsFromCheckpoint(t *testing.T, c *clustertest.Cluster) {
	r := c.Script(savingProgram+`
print(ctx.task_index, "has", held(), flush=True)
if not again:
    if first: save(1)
    time.sleep(600)
if first: save(2)
`, ownWorkingDir, func(s *clusterpb.StartRequest) { s.Options.MaxRestarts = 1 })
	awaitCheckpoint(t, r)
	c.Signal("worker:0", syscall.SIGKILL)
	requireFinished(t, r)
	for i := range 2 {
		want := fmt.Sprintf("%d has ['checkpoint', 'ckpt-1.data-00000-of-00001', 'ckpt-1.index']", i)
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q:\n%s", want, r.Text())
		}
	}
}

// resumesCheckpoint: start --resume, also right after a failure.
func resumesCheckpoint(t *testing.T, c *clustertest.Cluster) {
	r, f := c.TryScript(savingProgram+`
if first:
    save(7)
    raise SystemExit("enough")
time.sleep(600)
`, ownWorkingDir)
	if f == nil { // every task had entered before it failed
		f = r.Wait().GetFailure()
	}
	if f.GetTask() != "worker:0" {
		t.Fatalf("the failure is %v", f)
	}
	failed := r.Now().GetId()
	r = c.Script(savingProgram+`print(ctx.task_index, "has", held(), ctx.resumed, flush=True)`, ownWorkingDir,
		func(s *clusterpb.StartRequest) { s.Options.Resume = "last" })
	requireFinished(t, r)
	if want := fmt.Sprintf("run %d", failed); r.Now().GetResumedFrom() != want {
		t.Errorf("resumed from %q, want %q", r.Now().GetResumedFrom(), want)
	}
	if want := "1 has ['checkpoint', 'ckpt-7.data-00000-of-00001', 'ckpt-7.index'] True"; !strings.Contains(
		r.Text(), want) {
		t.Errorf("no %q:\n%s", want, r.Text())
	}
	checkFiles(t, r.Now(), "checkpoints", "checkpoint", "ckpt-7.data-00000-of-00001", "ckpt-7.index")
}

// replacesLostExecutor: the run continues on another executor, with an empty disk.
func replacesLostExecutor(t *testing.T, c *clustertest.Cluster) {
	r := c.Script(savingProgram+`
print(ctx.task_index, "has", held(), flush=True)
if not again:
    if first: save(1)
    time.sleep(600)
`, ownWorkingDir, func(s *clusterpb.StartRequest) { s.Options.MaxRestarts = 2 })
	awaitCheckpoint(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range st.GetExecutors() {
		if x.GetTask() == "worker:0" {
			if err := syscall.Kill(int(x.GetPid()), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	requireFinished(t, r)
	if want := "0 has ['checkpoint', 'ckpt-1.data-00000-of-00001', 'ckpt-1.index']"; !strings.Contains(r.Text(), want) {
		t.Errorf("no %q:\n%s", want, r.Text())
	}
	checkFiles(t, r.Now(), "checkpoints", "checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index")
}

// kerasResumes: a killed Keras program continues with the epoch after its backup, and its exported model is
// complete at the end of the run.
func kerasResumes(t *testing.T, c *clustertest.Cluster) {
	r := c.Script(`
import os, signal, sys, tfcluster
ctx = tfcluster.context()
if not ctx.is_chief: sys.exit()
import keras, numpy
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
class Die(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, "resumed", ctx.resumed, flush=True)
        if epoch == 1 and not ctx.resumed: os.kill(os.getpid(), signal.SIGKILL)
model.fit(numpy.ones((8, 2)), numpy.ones((8, 1)), epochs=2, verbose=0, callbacks=[
    keras.callbacks.BackupAndRestore(ctx.checkpoint_dir + "/backup"), Die()])
ctx.export_saved_model(model) # its assets folder is empty, so there is no file to send
`, ownWorkingDir, func(s *clusterpb.StartRequest) { s.Options.MaxRestarts = 1 })
	requireFinished(t, r)
	if text := r.Text(); !strings.Contains(text, "epoch 1 resumed True") ||
		strings.Contains(text, "epoch 0 resumed True") {
		t.Errorf("it did not resume in epoch 1:\n%s", text)
	}
	checkFiles(t, r.Now(), "checkpoints")
	checkFiles(t, r.Now(), "export", "fingerprint.pb", "saved_model.pb", "variables")
}
