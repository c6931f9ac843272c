package yarn_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// deadAddress is one of this machine at which nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// doomed are containers of two workers whose agents end before they join: they cannot
// dial their driver.
func doomed(ctx context.Context, t *testing.T, h *hadooptest.Cluster) (a cluster.Allocation, driver string) {
	t.Helper()
	driver = deadAddress(t)
	each := &clusterpb.Resources{MemoryBytes: 256 << 20}
	a, err := (&yarn.Backend{}).Allocate(ctx, cluster.Request{
		Cluster: "doomed", Program: program, Reserve: &clusterpb.ReserveRequest{Backend: "yarn", Engine: on(h)},
		Executors: []cluster.ExecutorRequest{{ID: "0", Task: cluster.TaskID{Role: "worker"}, Each: each}, {ID: "1", Task: cluster.TaskID{Role: "worker", Index: 1}, Each: each}},
		AgentConfig: func(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
			return &clusterpb.AgentConfig{
				Identity: &clusterpb.AgentIdentity{ExecutorId: string(id), Attempt: int32(attempt)}, Driver: &clusterpb.DriverAddress{Coordinator: driver},
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Release(context.Background(), cluster.Succeeded, ""); err != nil {
			t.Error(err)
		}
	})
	return a, driver
}

// logText is what was emitted: headings as they came, lines by their label.
type logText struct{ strings.Builder }

func (l *logText) emit(heading string, lines []*clusterpb.Line) error {
	if heading != "" {
		fmt.Fprintln(l, "#", heading)
	}
	for _, line := range lines {
		fmt.Fprintf(l, "[%s] %s\n", line.GetTask(), line.GetText())
	}
	return nil
}

// readsLogs: what containers wrote that ended before their agents joined is read from
// their nodes while the application lives, and from HDFS when it has ended.
func readsLogs(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	a, driver := doomed(ctx, t, h)
	why := "tfcluster agent: cannot dial the cluster's driver at " + driver
	for lost := 0; lost < 2; {
		select {
		case e := <-a.Events():
			l, ok := e.(cluster.Lost)
			if !ok {
				continue
			}
			lost++
			if n := len(l.LastLines); n == 0 || !strings.Contains(l.LastLines[n-1], why) {
				t.Errorf("executor %s said %q", l.Executor, l.LastLines)
			}
		case <-ctx.Done():
			t.Fatal("nobody says that the agents ended")
		}
	}
	keeper, ok := a.(cluster.ApplicationHistory)
	if !ok {
		t.Fatal("the allocation keeps no logs")
	}
	container := regexp.MustCompile(`worker:1, attempt 0: (container_\w+) on 127\.[\d.]+:8041, stderr`)
	check := func(where string, read func(cluster.LogQuery, *logText) error) (name string) {
		var all, one, role, last, none logText
		for _, tt := range []struct {
			q   cluster.LogQuery
			out *logText
		}{
			{cluster.LogQuery{}, &all},
			{cluster.LogQuery{Task: "worker:1"}, &one},
			{cluster.LogQuery{Task: "worker", Grep: regexp.MustCompile("cannot dial")}, &role},
			{cluster.LogQuery{Last: 1}, &last},
		} {
			if err := read(tt.q, tt.out); err != nil {
				t.Errorf("%s, %+v: %v", where, tt.q, err)
			}
		}
		found := container.FindStringSubmatch(all.String())
		if found == nil || strings.Count(all.String(), why) != 2 || !strings.Contains(all.String(), "# worker:0, attempt 0: ") || strings.Contains(all.String(), "LogType") {
			t.Fatalf("%s: %s", where, all.String())
		}
		for _, some := range []*logText{&one, &role, &last} {
			if !strings.Contains(some.String(), "[agent of worker:1] "+why) || (some != &one) != strings.Contains(some.String(), "[agent of worker:0]") {
				t.Errorf("%s, some: %s", where, some.String())
			}
		}
		if n := strings.Count(last.String(), "\n"); n != 4 { // two headings, two lines
			t.Errorf("%s, the last lines: %s", where, last.String())
		}
		var named logText
		if err := read(cluster.LogQuery{Task: found[1]}, &named); err != nil || named.String() != one.String() {
			t.Errorf("%s, %s: %v\n%s", where, found[1], err, named.String())
		}
		if err := read(cluster.LogQuery{Task: "ps:0"}, &none); none.Len() > 0 || err != nil && !strings.Contains(err.Error(), "hold nothing of ps:0") && !strings.Contains(err.Error(), "is nothing of what is asked for") {
			t.Errorf("%s, of nobody: %v\n%s", where, err, none.String())
		}
		return found[1]
	}
	application, places := a.ID(), keeper.LogLocations()
	living := check("it lives", func(q cluster.LogQuery, out *logText) error { return keeper.ContainerLogs(ctx, q, out.emit) })
	if err := a.Release(ctx, cluster.Succeeded, ""); err != nil {
		t.Fatal(err)
	}
	if l := a.(cluster.ApplicationHistory).Applications(); len(l) != 1 || l[0].ID != application || l[0].State != "finished" {
		t.Errorf("it was %v", l)
	}
	read := func(r *clusterpb.ReserveRequest, id string, places []byte) func(cluster.LogQuery, *logText) error {
		return func(q cluster.LogQuery, out *logText) error {
			q.Allocation = id
			return containerlogs.Read(ctx, r, places, q, out.emit)
		}
	}
	// Until the nodes have put them on HDFS that is said, or they are the nodes' own.
	var early logText
	if err := read(&clusterpb.ReserveRequest{Engine: on(h)}, application, places)(cluster.LogQuery{}, &early); err != nil && !strings.Contains(err.Error(), "are not there yet") {
		t.Errorf("at once: %v", err)
	}
	clustertest.WaitFor(t, "the logs on HDFS", func() bool {
		var out logText
		err := read(&clusterpb.ReserveRequest{Engine: on(h)}, application, nil)(cluster.LogQuery{}, &out)
		if err != nil && !strings.Contains(err.Error(), "are not there yet") {
			t.Errorf("it has ended: %v", err)
		}
		return err == nil && strings.Count(out.String(), why) == 2
	})
	if ended := check("it has ended", read(&clusterpb.ReserveRequest{Engine: on(h)}, application, nil)); ended != living {
		t.Errorf("worker:1 was %s, and is %s", living, ended)
	}
	if o := containerlogs.Outcomes(ctx, &clusterpb.ReserveRequest{Engine: on(h)}, []string{application}); o[application] != "finished" {
		t.Errorf("it ended as %v", o)
	}
	// Which are not there, or for others.
	unknown := application[:strings.LastIndex(application, "_")] + "_9999"
	for _, tt := range []struct {
		id, user, want string
	}{
		{unknown, "", "YARN does not know that application"},
		{application, "stranger", "are for "},
		{"application_x", "", "is no application"},
	} {
		var out logText
		err := read(&clusterpb.ReserveRequest{Engine: on(h, "user", tt.user)}, tt.id, nil)(cluster.LogQuery{}, &out)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || out.Len() > 0 {
			t.Errorf("%s for %q: %v\n%s", tt.id, tt.user, err, out.String())
		}
	}
}

// losesLogs: where YARN keeps no logs that is said.
func losesLogs(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	tellsWhy(t, h, "yarn.log-aggregation-enable=true")
}

// leavesLogs: of logs in Hadoop's other format it is said how they are read.
func leavesLogs(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	tellsWhy(t, h, "another format than TFile", "yarn logs -applicationId application_")
}

// indexed has nodes keep logs in Hadoop's other format.
var indexed = map[string]string{
	"yarn.log-aggregation.file-formats":                "IFile",
	"yarn.log-aggregation.file-controller.IFile.class": "org.apache.hadoop.yarn.logaggregation.filecontroller.ifile.LogAggregationIndexedFileController",
}

// tellsWhy awaits the word that an application's logs are not to be had.
func tellsWhy(t *testing.T, h *hadooptest.Cluster, wanted ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	a, _ := doomed(ctx, t, h)
	application := a.ID()
	for ended := false; !ended; {
		select {
		case e := <-a.Events():
			_, ended = e.(cluster.Lost)
		case <-ctx.Done():
			t.Fatal("nobody says that an agent ended")
		}
	}
	if err := a.Release(ctx, cluster.Succeeded, ""); err != nil {
		t.Fatal(err)
	}
	var err error
	var out logText
	clustertest.WaitFor(t, "a word on the logs", func() bool {
		err = containerlogs.Read(ctx, &clusterpb.ReserveRequest{Engine: on(h)}, nil, cluster.LogQuery{Allocation: application}, out.emit)
		return err != nil && !strings.Contains(err.Error(), "are not there yet")
	})
	for _, want := range wanted {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not in the word: %v\n%s", want, err, out.String())
		}
	}
}

// say runs the command line.
func say(ctx context.Context, h *hadooptest.Cluster, words ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.Env = environment(h)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// remembersBatch: of a batch run that is over the command line tells how it ended, what it
// wrote, and what its application's containers wrote.
func remembersBatch(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string) (application string) {
	t.Helper()
	over := regexp.MustCompile(`(?m)^cluster ` + name + `: released .*\n(?s:.*) fails.py .* (application_\d+_\d+) finished`)
	clustertest.WaitFor(t, "the application's end", func() bool {
		history, err := say(ctx, h, "history", "-c", name)
		if err != nil {
			t.Fatalf("history: %v\n%s", err, history)
		}
		found := over.FindStringSubmatch(history)
		if found != nil {
			application = found[1]
		}
		return found != nil
	})
	if lines, err := say(ctx, h, "logs", "-c", name, "--task", "worker:0"); err != nil || !strings.Contains(lines, "[worker:0] in a container there\n") {
		t.Errorf("logs: %v\n%s", err, lines)
	}
	clustertest.WaitFor(t, "the agent's logs", func() bool {
		some, err := say(ctx, h, "logs", "-c", application, "--task", "worker:0", "-n", "1")
		if strings.Contains(some, "[driver]") || err != nil && !strings.Contains(some, "are not there yet") {
			t.Fatalf("the agent's logs: %v\n%s", err, some)
		}
		return err == nil
	})
	return application
}

// tellsBoth: a live cluster tells of the application that it was and of the one that it is.
func tellsBoth(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name, before, now string) {
	t.Helper()
	if out, err := say(ctx, h, "history", "-c", name); err != nil || !strings.Contains(out, before+" killed: by user ") || !strings.Contains(out, now+" running") {
		t.Errorf("history: %v\n%s", err, out)
	}
	if out, err := say(ctx, h, "logs", "-c", now, "--task", "worker:0"); err != nil || strings.Contains(out, "worker:1") {
		t.Errorf("logs of %s: %v\n%s", now, err, out)
	}
}

// batch runs a program that fails.
func batch(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string, words ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fails.py"), []byte("import sys\nprint('in a container', sys.argv[1])\nsys.exit(17)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	words = append([]string{"run", "--backend", "yarn", "--name", name, "--workers", "1", "--memory", "1g", "--python", clustertest.FindPython(t), "--no-zygote"}, words...)
	cmd := exec.CommandContext(ctx, program, append(words, "fails.py", "there")...)
	cmd.Dir, cmd.Env = dir, environment(h)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 17 || !strings.Contains(string(out), "in a container there") {
		t.Errorf("it ended with %v:\n%s", err, out)
	}
}

// remembersPlain: the same where the driver was not YARN's.
func remembersPlain(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	batch(ctx, t, h, "batch-plain")
	remembersBatch(ctx, t, h, "batch-plain")
}
