package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	jupyterext "github.com/tfcluster/tfcluster/jupyter-ext"
	"github.com/tfcluster/tfcluster/tensorboard"
)

// TestMain is also the broker, which jupyter-server-proxy starts from this binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "broker" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		err := tensorboard.Broker(ctx, os.Args[3], os.Getenv("TFCLUSTER_TEST_BOARDS"))
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(clustertest.Main(m))
}

// writeRuns writes the event files of two runs without TensorFlow.
const writeRuns = `
import math, sys, time
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for run in ("chief", "worker-1"):
    writer = EventFileWriter(sys.argv[1] + "/" + run)
    for step in range(50):
        value = summary_pb2.Summary.Value(tag="loss", simple_value=math.exp(-step / 20) + 0.1 * (run == "chief"))
        writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=[value])))
    writer.close()
`

// toyKernel responds to the comm as the tfcluster kernel does. Its responses are not saved in the notebook.
const toyKernel = `import os
from IPython.display import display
def target(comm, _):
    def answer(message):
        request = {"type": "tensorboard", "id": os.environ["TOY_ID"]}
        known = message["content"]["data"] == request
        comm.send({**request, "path": os.environ["TOY_PATH"], "logdir": os.environ["TOY_LOGDIR"]}
                  if known else {"type": "error", "message": "no such board"})
    comm.on_msg(answer)
get_ipython().kernel.comm_manager.register_target("tfcluster.v1", target)`

const showTensorBoard = `display({"application/vnd.tfcluster.tensorboard.v1+json": {"id": os.environ["TOY_ID"]}, ` +
	`"text/html": "no" + " extension", "text/plain": "no" + " extension"}, raw=True)`

// openTensorBoard starts the real TensorBoard with two runs.
func openTensorBoard(t *testing.T) (boards string, a tensorboard.Address, b *tensorboard.Board) {
	t.Helper()
	python := os.Getenv("TFCLUSTER_TEST_TENSORBOARD_PYTHON")
	if python == "" {
		python = filepath.Join(repository(t), ".venv-tensorboard", "bin", "python")
	}
	if _, err := os.Stat(python); err != nil {
		t.Skipf("missing: a Python with TensorBoard (%s, or TFCLUSTER_TEST_TENSORBOARD_PYTHON)", python)
	}
	logs := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, python, "-c", writeRuns, logs).CombinedOutput(); err != nil {
		t.Fatalf("write events: %v\n%s", err, out)
	}
	boards, err := os.MkdirTemp("", "tb") // a short path, since it contains sockets
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(boards, "brave-otter")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	b = tensorboard.New("brave-otter", python, own, filepath.Join(t.ArtifactDir(), "tensorboard.log"), nil)
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		removeAll(t, boards)
	})
	if a, err = b.Open(t.Context(), logs); err != nil {
		t.Fatal(err)
	}
	return boards, a, b
}

func TestTensorBoardInTheCell(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorBoard and a browser")
	}
	boards, a, b := openTensorBoard(t)
	prefix := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := jupyterext.PrefixTarget(prefix).Install(self,
		[]byte(`{"argv":["false"],"display_name":"x","language":"python"}`)); err != nil {
		t.Fatal(err)
	}
	s := Start(t, prefix, "TFCLUSTER_TEST_BOARDS="+boards, "TOY_ID="+a.ID, "TOY_PATH="+a.Path, "TOY_LOGDIR="+a.Logdir)
	nb := s.WriteNotebook(t, "board.ipynb", "python3", toyKernel, showTensorBoard)

	r := s.RunNotebook(t, nb, "run-all", "idle", "frame:tb-webapp", "frame:scalar-card svg", "shot:tensorboard", "save")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	if !strings.Contains(r.Text, a.Logdir) || strings.Contains(r.Text, "no extension") {
		t.Errorf("the notebook shows:\n%s", r.Text)
	}
	framed := false
	for _, url := range r.Frames {
		framed = framed || strings.HasPrefix(url, s.Base+a.Path)
	}
	if !framed {
		t.Errorf("frames %v, want one of %s", r.Frames, s.Base)
	}
	saved, err := os.ReadFile(filepath.Join(s.Root, nb))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(saved), a.ID) || strings.Contains(string(saved), a.Path) {
		t.Errorf("the saved notebook lacks the ID or contains the path:\n%s", saved)
	}

	t.Run("saved and opened again", func(t *testing.T) {
		r := s.RunNotebook(t, nb, "frame:scalar-card svg", "shot:opened-again")
		if len(r.Failed) > 0 {
			t.Errorf("failed requests %v", r.Failed)
		}
	})
	t.Run("restarted kernel without the cluster", func(t *testing.T) {
		s.RunNotebook(t, nb, "frame:tb-webapp", "restart", "text:cluster is gone", "shot:restarted",
			"run-all", "idle", "frame:scalar-card svg")
	})
	t.Run("closed board", func(t *testing.T) {
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.RunNotebook(t, nb, "run-all", "text:TensorBoard is gone", "shot:closed")
	})
}
