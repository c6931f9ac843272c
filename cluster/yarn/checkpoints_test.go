package yarn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// writesSets saves step-N/rank-R in each step, which no rank waits for, and says where it begins.
const writesSets = `
import pathlib, random, time
import tfcluster

ctx = tfcluster.context()
rank, root = ctx.worker_num, pathlib.Path(ctx.checkpoint_dir)
begin = max((int(p.parent.name[5:]) for p in root.glob(f"step-*/rank-{rank}")), default=0)
print(f"rank {rank} begins at {begin}.", flush=True)
for step in range(begin + 1, begin + 1000):
    time.sleep(random.uniform(0.2, 0.8))
    folder = root / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (root / f"rank-{rank}.tmp").write_text(str(step))
    (root / f"rank-{rank}.tmp").rename(folder / f"rank-{rank}")
    print(f"rank {rank} saved {step}.", flush=True)
    ctx.report(step=step)
`

// TestWholeCheckpoint: the driver of a managed cluster is killed at a random moment while ranks save their parts of
// checkpoints; the run that continues begins on every rank with the newest checkpoint that all have saved.
// TFCLUSTER_TEST_KILLS is the number of kills, each of a new application; make test-long has 20.
func TestWholeCheckpoint(t *testing.T) {
	h := sharedHadoop(t)
	kills := 1
	if given := os.Getenv("TFCLUSTER_TEST_KILLS"); given != "" {
		var err error
		if kills, err = strconv.Atoi(given); err != nil {
			t.Fatal(err)
		}
	}
	for n := range kills {
		t.Run(strconv.Itoa(n), func(t *testing.T) { continuesWhole(t, h) })
	}
}

var (
	begins   = regexp.MustCompile(`rank (\d) begins at (\d+)\.`)
	driverOf = regexp.MustCompile(`driver (\d+) on `)
)

func continuesWhole(t *testing.T, h *hadooptest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	dir, name := t.TempDir(), newTag("whole")
	if err := os.WriteFile(filepath.Join(dir, "sets.py"), []byte(writesSets), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, clustertest.Program(t), "run", "--backend", "yarn", "--managed", "--detach", "--name",
		name, "--dir", "hdfs:///tfcluster/"+name, "--workers", "2", "--memory", "1g", "--framework", "none", "--max-restarts",
		"1", "--python", clustertest.FindPython(t), "--no-zygote", "sets.py")
	cmd.Dir, cmd.Env = dir, hadoopEnv(h)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	shutdown := sync.OnceFunc(func() {
		if out, err := runCommand(context.WithoutCancel(ctx), t, h, "shutdown", "--force", "-c", name); err != nil {
			t.Errorf("shutdown: %v\n%s", err, out)
		}
	})
	defer shutdown()
	logs := func(run string) string {
		out, _ := runCommand(ctx, t, h, "logs", "-c", name, "--run", run, "-n", "10000") // else there is no line yet
		return out
	}
	clustertest.WaitFor(t, "a few checkpoints", func() bool { return strings.Contains(logs("1"), "saved 3.") })
	time.Sleep(rand.N(2 * time.Second)) // a moment of a step
	if err := syscall.Kill(masterPID(ctx, t, h, name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var found [][]string
	clustertest.WaitFor(t, "the next run on both ranks", func() bool {
		found = begins.FindAllStringSubmatch(logs("2"), -1)
		return len(found) >= 2
	})
	if len(found) != 2 || found[0][2] != found[1][2] || found[0][1] == found[1][1] {
		t.Errorf("the ranks begin at different steps: %v", found)
	}
	begin, err := strconv.Atoi(found[0][2])
	if err != nil {
		t.Fatal(err)
	}
	said := min(newest(logs("1"), "0"), newest(logs("1"), "1")) // a task may end before it says so
	shutdown()                                                  // it carries files to HDFS
	if on := newestWhole(ctx, t, h, name); begin < said || begin > said+1 || begin < on {
		t.Errorf("the run continues at step %d; both ranks have said that they saved %d, and on HDFS both have %d",
			begin, said, on)
	}
}

// newest returns the newest step that a rank says it has saved.
func newest(lines, rank string) (step int) {
	for _, m := range regexp.MustCompile(`rank `+rank+` saved (\d+)\.`).FindAllStringSubmatch(lines, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil {
			step = max(step, n)
		}
	}
	return step
}

// masterPID returns the process of a managed cluster's driver.
func masterPID(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string) int {
	t.Helper()
	out, err := runCommand(ctx, t, h, "status", "-c", name)
	found := driverOf.FindStringSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("status names no driver: %v\n%s", err, out)
	}
	pid, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// newestWhole returns the newest step of run 1 that both ranks have saved on HDFS.
func newestWhole(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string) int {
	t.Helper()
	store := openHDFS(t, h)
	defer store.Close()
	runs := path.Join("/tfcluster", name, "run-001", "checkpoints")
	infos, err := store.List(ctx, runs)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, i := range infos {
		step, err := strconv.Atoi(strings.TrimPrefix(i.Name(), "step-"))
		if err != nil {
			continue
		}
		ranks, err := store.List(ctx, path.Join(runs, i.Name()))
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, r := range ranks {
			if strings.HasPrefix(r.Name(), "rank-") {
				whole++
			}
		}
		if whole == 2 {
			found = max(found, step)
		}
	}
	fmt.Fprintln(t.Output(), "the newest whole checkpoint on HDFS is of step", found)
	return found
}
