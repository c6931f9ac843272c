package sparktest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// barrier runs a barrier stage of two tasks, prints the application and the tasks' executors, and keeps its
// session until its stdin is closed.
const barrier = `
import os, sys
from pyspark import BarrierTaskContext, SparkFiles
from pyspark.sql import SparkSession

builder = SparkSession.builder.master(sys.argv[1])
spark = builder.config("spark.executor.cores", 1).config("spark.cores.max", 2).getOrCreate()

def where(batches):
    import pyarrow
    here = BarrierTaskContext.get()
    said = here.allGather(f"{here.partitionId()}@{os.getppid()}")
    for _ in batches:
        pass
    yield pyarrow.RecordBatch.from_pydict({"said": [",".join(said)]})

rows = spark.range(2, numPartitions=2).mapInArrow(where, "said string", barrier=True).collect()
print(spark.sparkContext.applicationId, *sorted(r.said for r in rows), flush=True)
sys.stdin.read()
spark.stop()
`

// TestBarrier: a barrier stage runs on executors of both workers; one worker is killed and another one is
// added.
func TestBarrier(t *testing.T) {
	t.Parallel()
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.1"}
	c := Start(t, Options{Wrap: func(i int) ([]string, string) { return []string{"env", "-u", "LANG"}, hosts[i] }})
	cmd := exec.CommandContext(t.Context(), c.Python, "-c", barrier, c.URL)
	cmd.Env, cmd.Dir = c.Environment(), t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(cmd.Dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("read the stage's result: %v\n%s", err, tail(read(log.Name())))
	}
	app, results, _ := strings.Cut(strings.TrimSpace(line), " ")
	if each := strings.Fields(results); len(each) != 2 || each[0] != each[1] || !strings.HasPrefix(each[0], "0@") ||
		!strings.Contains(each[0], ",1@") {
		t.Errorf("the tasks returned %q", results)
	}
	executors := c.Executors(app)
	if len(executors) != 2 || executors[0].ID != "0" || executors[1].ID != "1" ||
		executors[0].Worker+executors[1].Worker != 1 {
		t.Errorf("executors of %s: %+v", app, executors)
	}
	if s, err := c.State(); err != nil || len(s.Active) != 1 || s.Active[0].ID != app || s.Active[0].Cores != 2 ||
		len(s.Alive()) != 2 ||
		!slices.ContainsFunc(s.Workers, func(w Worker) bool { return w.Host == hosts[1] && w.CoresUsed == 1 }) {
		t.Errorf("the master has %+v, %v", s, err)
	}
	c.KillWorker(1)
	for _, e := range executors {
		if p := state.ProcessOf(e.PID); e.Worker == 1 {
			clustertest.WaitFor(t, "the end of the lost worker's executor", func() bool { return !p.Alive() })
		}
	}
	c.await("the loss of the worker", func(s State) bool { return len(s.Alive()) == 1 })
	c.AddWorker()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the session: %v\n%s", err, tail(read(log.Name())))
	}
}

// TestBinaryKilled: a test binary that is killed leaves no process of its cluster.
func TestBinaryKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv("SPARKTEST_CHILD") != "" {
		c := Start(t, Options{Workers: 1})
		fmt.Println("daemons", c.daemons[0].cmd.Process.Pid, c.daemons[1].cmd.Process.Pid)
		select {} // until it is killed
	}
	if testing.Short() {
		t.Skip("short: starts Spark")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBinaryKilled$")
	cmd.Env = append(os.Environ(), "SPARKTEST_CHILD=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var daemons []state.Process
	var output strings.Builder
	for lines := bufio.NewScanner(out); daemons == nil && lines.Scan(); {
		output.WriteString(lines.Text() + "\n")
		var master, worker int
		if n, _ := fmt.Sscanf(lines.Text(), "daemons %d %d", &master, &worker); n == 2 {
			daemons = []state.Process{state.ProcessOf(master), state.ProcessOf(worker)}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if strings.Contains(output.String(), "missing: ") {
		t.Skip(output.String())
	}
	if daemons == nil {
		t.Errorf("the child printed %q", output.String())
	}
	for _, d := range daemons {
		clustertest.WaitFor(t, "the daemon's end", func() bool { return !d.Alive() })
	}
}
