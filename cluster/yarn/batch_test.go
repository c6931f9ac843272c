package yarn_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// runsBatch: tfcluster run, up to the final status in YARN.
func runsBatch(t *testing.T, h *hadooptest.Cluster) {
	dir := t.TempDir()
	for name, body := range map[string]string{
		"fails.py": "import sys\nprint('in a container', sys.argv[1])\nsys.exit(17)\n",
		"works.py": hello,
		"stays.py": "print('it stays', flush=True)\n" + forever,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		managed bool
		program string
		output  string
		code    int
		status  yarnpb.FinalApplicationStatus
		why     string
	}{
		{
			"managed-fails", true, "fails.py", "in a container there", 17, yarnpb.FinalApplicationStatus_APP_FAILED,
			"exited with code 17",
		},
		{
			"managed-stopped", true, "stays.py", "it stays", 128 + int(syscall.SIGTERM),
			yarnpb.FinalApplicationStatus_APP_KILLED, "stopped on request",
		},
		{
			"fails", false, "fails.py", "in a container there", 17, yarnpb.FinalApplicationStatus_APP_FAILED,
			"exited with code 17",
		},
		{"works", false, "works.py", "out of it", 0, yarnpb.FinalApplicationStatus_APP_SUCCEEDED, "released"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
			defer cancel()
			tag := newTag(tt.name)
			args := []string{
				"run", "--backend", "yarn", "--tags", tag, "--name", "batch-" + tag, "--workers", "1", "--memory", "1g", "--python",
				clustertest.FindPython(t), "--no-zygote",
			}
			if tt.managed {
				args = append(args, "--managed")
			}
			cmd := exec.CommandContext(ctx, clustertest.Program(t), append(args, tt.program, "there")...)
			cmd.Dir, cmd.Env = dir, hadoopEnv(h)
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			output := func() string {
				b, err := os.ReadFile(out.Name())
				if err != nil {
					t.Error(err)
				}
				return string(b)
			}
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.code > 128 {
				clustertest.WaitFor(t, "the program's line", func() bool { return strings.Contains(output(), tt.output) })
				if err := cmd.Process.Signal(syscall.Signal(tt.code - 128)); err != nil {
					t.Error(err)
				}
			}
			err = cmd.Wait()
			if cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(output(), tt.output) {
				t.Errorf("the command ended with %v:\n%s", err, output())
			}
			checkFinalStatus(ctx, t, h, tag, tt.status, tt.why)
			if tt.code == 17 {
				checkHistoryAndDriver(ctx, t, h, "batch-"+tag, tt.managed)
			}
		})
	}
	t.Run("a detached run needs no process on this host",
		func(t *testing.T) { t.Parallel(); runsWithoutSubmitter(t, h, dir) })
	t.Run("others end a run", func(t *testing.T) { t.Parallel(); endsByOthers(t, h, dir) })
	t.Run("an interactive cluster succeeds although its run failed", func(t *testing.T) {
		t.Parallel()
		tag := newTag("interactive")
		c := managed(t, h).Start(t, "worker=1", func(r *clusterpb.ReserveRequest) {
			r.Engine = engineOptions(h, "managed", "true", "tags", tag)
		})
		run, early := c.TryScript("raise SystemExit(17)") // it may end before Start returns
		var st *clusterpb.RunStatus
		if early != nil {
			st = run.Status
		} else {
			st = run.Wait()
		}
		if st.GetState() != "failed" {
			t.Errorf("the run is %s", st.GetState())
		}
		c.End()
		checkFinalStatus(t.Context(), t, h, tag, yarnpb.FinalApplicationStatus_APP_SUCCEEDED, "released")
	})
}

// newTag returns a tag that no earlier application has: with -count the Hadoop is the same.
func newTag(what string) string { return what + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

// checkHistoryAndDriver checks the history of an ended batch run, and, if its driver ran in a container, the
// driver's log.
func checkHistoryAndDriver(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string, managed bool) {
	t.Helper()
	application := checkHistory(ctx, t, h, name)
	if !managed {
		return
	}
	clustertest.WaitFor(t, "the driver's logs", func() bool {
		lines, err := runCommand(ctx, t, h, "logs", "-c", application)
		if err != nil && !strings.Contains(lines, "are not there yet") {
			t.Fatalf("logs of %s: %v\n%s", application, err, lines)
		}
		return strings.Contains(lines, "── the cluster's driver: container_") &&
			strings.Contains(lines, ", stderr\n[driver] ")
	})
}

// checkFinalStatus checks the final status and the diagnostics of the only application with a tag.
func checkFinalStatus(ctx context.Context, t *testing.T, h *hadooptest.Cluster, tag string,
	status yarnpb.FinalApplicationStatus, why string,
) {
	t.Helper()
	conf, user := hadoop(t, h)
	client, err := protocol.NewClient(conf, user, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	apps, err := client.Applications(ctx, tag)
	if err != nil || len(apps) != 1 {
		t.Fatalf("the applications are %v: %v", apps, err)
	}
	r, err := client.Await(ctx, apps[0].GetApplicationId(),
		func(r *yarnpb.ApplicationReport) bool { return protocol.Ended(r.GetYarnApplicationState()) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.GetFinalApplicationStatus() != status || !strings.Contains(r.GetDiagnostics(), why) ||
		strings.Contains(strings.TrimSpace(r.GetDiagnostics()), "\n") {
		t.Errorf("the application is %s, %s: %q", r.GetYarnApplicationState(), r.GetFinalApplicationStatus(),
			r.GetDiagnostics())
	}
}

// runsWithoutSubmitter: a detached run of a managed cluster starts, ends and releases everything although no
// process of it is left on this host.
func runsWithoutSubmitter(t *testing.T, h *hadooptest.Cluster, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	tag := newTag("alone")
	name := "batch-" + tag
	cmd := exec.CommandContext(ctx, clustertest.Program(t), "run", "--backend", "yarn", "--managed", "--detach", "--tags",
		tag, "--name", name, "--workers", "1", "--memory", "1g", "--python", clustertest.FindPython(t), "--no-zygote",
		"fails.py", "there")
	cmd.Dir, cmd.Env = dir, hadoopEnv(h)
	var hints strings.Builder
	cmd.Stderr = &hints
	out, err := cmd.Output()
	if err != nil || string(out) != name+"\n" || !strings.Contains(hints.String(), "tfcluster wait -c "+name) {
		t.Fatalf("the command ends with %v, writes %q and\n%s", err, out, hints.String())
	}
	s, err := state.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	clustertest.WaitFor(t, "the end of the process on this host", func() bool { return !s.Driver.Alive() })
	checkFinalStatus(ctx, t, h, tag, yarnpb.FinalApplicationStatus_APP_FAILED, "exited with code 17")
	// A later command on this host returns the result and removes the state.
	for range 2 {
		out, err := runCommand(ctx, t, h, "wait", "-c", name)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 17 || !strings.Contains(out, "exited with code 17") {
			t.Errorf("wait ends with %v:\n%s", err, out)
		}
	}
	clustertest.WaitFor(t, "the removal of its state", func() bool {
		_, err := state.Load(name)
		return errors.Is(err, fs.ErrNotExist)
	})
	checkHistoryAndDriver(ctx, t, h, name, true)
}
