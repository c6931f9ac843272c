package yarn_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// endsByOthers: wait, during the run and afterwards, by the cluster's name and by its application, ends with 143 where
// somebody else stops the run, and with 137 where somebody kills the application. dir has stays.py.
func endsByOthers(t *testing.T, h *hadooptest.Cluster, dir string) {
	for _, tt := range []struct {
		name string
		end  func(ctx context.Context, t *testing.T, name, application string)
		code int
		says string // in the output of wait during the run
	}{
		{"stopped", func(ctx context.Context, t *testing.T, name, application string) {
			if out, err := runCommand(ctx, t, h, "stop", "-c", application); err != nil {
				t.Errorf("stop -c %s: %v\n%s", application, err, out)
			}
		}, 143, "was stopped"},
		// The text is the driver's ("killed in YARN by root") or, if it ended too early, YARN's ("killed: by user root").
		{"killed", func(_ context.Context, t *testing.T, _, id string) { kill(t, h, id) }, 137, " killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
			defer cancel()
			name := newTag(tt.name)
			cmd := exec.CommandContext(ctx, clustertest.Program(t), "run", "--backend", "yarn", "--managed", "--detach",
				"--name", name, "--workers", "1", "--memory", "1g", "--framework", "none", "--python", clustertest.FindPython(t),
				"--no-zygote", "stays.py")
			cmd.Dir, cmd.Env = dir, hadoopEnv(h)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("run: %v\n%s", err, out)
			}
			waited := make(chan string, 1)
			var code int
			go func() { // ends with the run, or with ctx
				out, err := runCommand(ctx, t, h, "wait", "-c", name)
				code = exitOf(err)
				waited <- out
			}()
			clustertest.WaitFor(t, "the program's line", func() bool {
				out, _ := runCommand(ctx, t, h, "logs", "-c", name) // else the line is missing
				return strings.Contains(out, "it stays")
			})
			s, err := state.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			tt.end(ctx, t, name, s.Allocation)
			if out := <-waited; code != tt.code || !strings.Contains(out, tt.says) {
				t.Errorf("wait ends with %d:\n%s", code, out)
			}
			for _, which := range []string{name, s.Allocation} {
				if out, err := runCommand(ctx, t, h, "wait", "-c", which); exitOf(err) != tt.code {
					t.Errorf("wait -c %s ends afterwards with %v:\n%s", which, err, out)
				}
			}
		})
	}
}

// exitOf returns the exit code of a command by its error; -1 for other errors.
func exitOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
