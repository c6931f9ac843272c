package spark_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// showing is a program that shows what it sees of both clusters' environments, once the
// tasks of both are there.
const showing = `
import os, sys, time
folder = sys.argv[1]
open(os.path.join(folder, sys.argv[2] + os.environ["TASK_INDEX"]), "w").close()
until = time.monotonic() + 100
while len(os.listdir(folder)) < 4 and time.monotonic() < until:
    time.sleep(0.05)
secrets = sorted(k for k in os.environ if k.startswith("SECRET_OF_"))
print("sees", os.environ.get("WHOSE"), secrets, len(os.listdir(folder)), flush=True)
`

// TestSameNameTwoHomes: two people behind one user of a Spark, each with a state home of
// his own, have clusters of the same name at the same time. Each one's tasks see their own
// environment.
func TestSameNameTwoHomes(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	both, script := t.TempDir(), filepath.Join(t.TempDir(), "showing.py")
	if err := os.WriteFile(script, []byte(showing), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*clustertest.Deadline)
	defer cancel()
	var said [2]string
	var g errgroup.Group
	for i, whose := range []string{"A", "B"} {
		args := []string{
			"run", "--backend", "spark", "--name", "spark-1", "--workers", "2", "--master", c.URL, "--python", c.Python,
		}
		conf := own(t, c).Reserve.GetEngine()
		conf["conf.spark.cores.max"], conf["conf.spark.executor.cores"] = "2", "1"
		conf["conf.spark.executorEnv.WHOSE"], conf["conf.spark.executorEnv.SECRET_OF_"+whose] = whose, "1"
		for key, value := range conf {
			if key, ok := strings.CutPrefix(key, "conf."); ok {
				args = append(args, "--conf", key+"="+value)
			}
		}
		cmd := exec.CommandContext(ctx, clustertest.Program(t), append(args, script, both, whose)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it releases what it holds
		cmd.Env, cmd.Dir = append(c.Environment(), "TFCLUSTER_HOME="+t.TempDir()), t.TempDir()
		g.Go(func() error {
			out, err := cmd.CombinedOutput()
			if said[i] = string(out); err != nil {
				return fmt.Errorf("cluster %s: %w\n%s", whose, err, out)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for i, whose := range []string{"A", "B"} {
		want := fmt.Sprintf("sees %s ['SECRET_OF_%s'] 4\n", whose, whose)
		for _, task := range []string{"[worker:0] ", "[worker:1] "} {
			if strings.Contains(said[i], task+want) {
				continue
			}
			t.Errorf("cluster %s, whose tasks are to say %q, says\n%s", whose, want, said[i])
			break
		}
	}
}

// TestJobsOfOthers: that Spark had to try a job of the notebook's again says nothing of the
// agents of a cluster on the same session, whatever the job's group is called.
func TestJobsOfOthers(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	s := startNotebook(t, c, "spark.app.name="+named(t, c), "spark.master="+c.URL, "spark.executor.cores=1",
		"spark.cores.max=4", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false")
	h := s.lent(c)
	name := func(r *clusterpb.ReserveRequest) { r.Name = "jobs-of-others" }
	s.say("retry", "tfcluster-jobs-of-others-1")
	s.hear("retried")
	for range 2 { // the second one's calls count from 1 again
		cl := h.Start(t, "worker=2", name)
		st, err := cl.Status(t.Context(), &clusterpb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range st.GetExecutors() {
			if x.GetAttempt() != 0 {
				t.Errorf("the agent of %s was thrown away: attempt %d", x.GetTask(), x.GetAttempt())
			}
		}
		for _, n := range st.GetNotes() {
			if strings.Contains(n.GetText(), "lost") {
				t.Errorf("it says %q", n.GetText())
			}
		}
		cl.End()
	}
}
