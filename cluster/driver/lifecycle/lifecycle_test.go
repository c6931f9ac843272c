package lifecycle

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

var update = flag.Bool("update", false, "write the transcripts anew; commit only what you understand")

// TestLifecycle plays the transcripts in testdata. A block is a list of events, one per line,
// then ---- and the resulting actions, then the state if requested.
//
//	cluster chief=1 worker=2 ps=1 idle=30m   creates the cluster; must be first; further options:
//	db=1 db.kind=sidecar worker.after=db,ps worker.end=10s
//	up                                       every agent joins and warms
//	refused [words] · released               the engine grants nothing, or has taken everything back
//	pending|granted|lost ID [words]          events of the engine; of lost also by=error, by=memory
//	reallocated ID · backed-off ID… · engine-ended [words]
//	join ID [attempt] [warm] · warmed ID · disconnected ID      events of an agent
//	rejoin ID · rejoin-idle ID               with its task, or without a task
//	start [restarts=N] [step=T] [run=T]
//	prepared · entered [TASK…] · joined TASK     all tasks, or the named ones
//	exit TASK [code=N] [signal=N] [exception=E] [reason=R]
//	stopped TASK                             a heartbeat reports process state T
//	steps [TASK…] counter=C step=N [every=SECONDS] [passed=yes]    answers to the last AskStep or ActAtStep
//	leaving TASK…                            the stop request has reached these programs
//	step · stop [grace] · reset [hard] · clients N · shutdown · timer NAME
//	state                                    prints executors and run
func TestLifecycle(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs (go test -run TestLifecycle -update shows it in git diff); got:\n%s", file, got)
			}
		})
	}
}

// TestEchoes: isEcho recognises errors about a failed peer.
func TestEchoes(t *testing.T) {
	t.Parallel()
	for exception, echo := range map[string]bool{
		"UnavailableError: " +
			"tasks are unhealthy": true,
		"RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer " +
			"[127.0.0.1]:51090": true,
		"ValueError: UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error " +
			"[127.0.0.1]:1: Connection reset by peer": true,
		"RuntimeError: a collective call failed: " +
			"worker:1 has left the group": true,
		"RuntimeError: a collective call failed: barrier: worker:1 did not arrive: " +
			"the timeout= of 1s has passed": true,
		"RuntimeError: a collective call failed: barrier: the executor of worker:1 does not answer: " +
			"the timeout= of 1s has passed": true,
		"RuntimeError: the feed failed: worker:1 has ended while records were " +
			"delivered to it": true,
		"RuntimeError: the feed failed: worker:1 has ended with 60 records that no program " +
			"has read": true,
		"RuntimeError: the feed failed: ValueError: " +
			"worker:1 has ended": false,
		"RuntimeError: a collective call failed: call 1 of worker:0 is barrier, " +
			"of worker:1 it is all_gather": false,
		"torch.distributed.DistBackendError: NCCL error, unhandled system error\n" +
			"ncclRemoteError: A call failed possibly due to a remote process exiting": true,
		"ConnectionResetError: [Errno 104] Connection reset by peer": false,
		"ValueError: bad batch": false,
	} {
		if got := isEcho(&clusterpb.Exited{Code: 1, Exception: exception}); got != echo {
			t.Errorf("%q is an echo: %v", exception, got)
		}
	}
}

// TestRemedies: what a failure advises, by what is known of its cause.
func TestRemedies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		exit *clusterpb.Exited
		want string
	}{
		{nil, "%tfcluster reset"},
		{&clusterpb.Exited{Code: -1, Signal: 11}, "native code failed"},
		{&clusterpb.Exited{Code: -1, Signal: 9}, "find out what sent the signal"},
		{&clusterpb.Exited{Code: 1, Exception: "ValueError: x"}, "the executors stay reserved"},
		{
			&clusterpb.Exited{Code: 1, Exception: "RuntimeError: Collective ops must be configured at program startup"},
			"create tf.distribute.MultiWorkerMirroredStrategy() before",
		},
		{&clusterpb.Exited{Code: 1, Exception: "MemoryError"}, "smaller batch"},
		{
			&clusterpb.Exited{Code: 1, Exception: "RuntimeError: a record has 9 bytes: reserve with --feed-memory 73m"},
			"reserve --replace takes other options",
		},
		{
			&clusterpb.Exited{Code: 1, Exception: "OSError: [Errno 28] No space left on device: '/data/x'"},
			"on that disk, or change the program",
		},
		{
			&clusterpb.Exited{Code: 1, Exception: "OSError: [Errno 24] Too many open files"},
			"(ulimit -n) and then %tfcluster reserve --replace",
		},
		{
			&clusterpb.Exited{Code: 1, Exception: "OSError: [Errno 12] Cannot allocate memory"},
			"free memory, or change the program; then run",
		},
		{&clusterpb.Exited{
			Code: 1, Exception: "RuntimeError: the feed failed: the executor of worker:0 has lost the connection to the " +
				"cluster's driver: x",
		}, "driver.log below"},
		{&clusterpb.Exited{
			Code: 1,
			Exception: "RuntimeError: a collective call failed: the executor of worker:0 has lost the connection to the " +
				"cluster's driver: x",
		}, "or the network between"},
		{&clusterpb.Exited{Code: 1, Reason: "its agent is gone"}, "%tfcluster reset"},
		{&clusterpb.Exited{Code: -1, Reason: "cannot be started: no such file"}, "another --python"},
		{
			&clusterpb.Exited{Code: -1, Reason: "cannot be started: open pipes for the output of a task: too many open files"},
			"(ulimit -n) and then %tfcluster reserve --replace",
		},
		{&clusterpb.Exited{
			Code: -1, Reason: "cannot be started: make a folder of the run below --dir: mkdir /x: permission denied",
		}, "another --dir; "},
		{
			&clusterpb.Exited{Code: -1, Reason: "cannot be started: --files pages on n1: the archive contains too many files"},
			"start sends it again",
		},
		{
			&clusterpb.Exited{Code: -1, Reason: "cannot be started: --files pages on n1: no such file"},
			"reserve --replace with other --files",
		},
		{
			&clusterpb.Exited{Code: -1, Reason: "cannot be started: --working-dir /x is not a folder on n1"},
			"%tfcluster start with another --working-dir",
		},
		{
			&clusterpb.Exited{Code: -1, Reason: "cannot be started: fetch the run's checkpoints from the driver: it has ended"},
			"from which the driver's host reads it, and the network",
		},
		{&clusterpb.Exited{Code: -1, Signal: 9, Reason: "the zygote died", OutOfMemory: true}, "smaller batch"},
	} {
		if got := new(Machine).failure(&Task{Exit: tt.exit}, "failed").GetRemedy(); !strings.Contains(got, tt.want) {
			t.Errorf("%v: %q does not hold %q", tt.exit, got, tt.want)
		}
	}
	for _, tt := range []struct {
		task       Task
		by         cluster.LostBy
		kind, want string
	}{
		{Task{Stopped: true}, cluster.LostByEngine, "lost", "find out what stopped it on h; "},
		{
			Task{Exit: &clusterpb.Exited{Code: -1, Reason: "executor lost: x"}},
			cluster.LostByMemory, "out_of_memory", "more --memory",
		},
		{
			Task{Exit: &clusterpb.Exited{Code: -1, Reason: "executor lost: x"}},
			cluster.LostByError, "lost", "correct on h what the reason names; ",
		},
		{Task{Exit: &clusterpb.Exited{Code: 1, Exception: "ValueError: x"}}, cluster.LostByError, "task", "fix the program"},
	} {
		x := &Executor{State: ExecutorLost, Host: "h", loss: executorLoss{by: tt.by}}
		if kind, remedy := taskRemedy(&tt.task, x); kind != tt.kind || !strings.Contains(remedy, tt.want) {
			t.Errorf("%v: %s, %q does not hold %q", tt.task.Exit, kind, remedy, tt.want)
		}
	}
}
