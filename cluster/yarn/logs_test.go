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

// deadAddress returns a local address on which nothing listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// allocateUnreachable allocates containers for two workers whose agents end before they join, since they
// cannot dial the driver. It returns the driver's address.
func allocateUnreachable(ctx context.Context, t *testing.T,
	h *hadooptest.Cluster,
) (a cluster.Allocation, driver string) {
	t.Helper()
	driver = deadAddress(t)
	each := &clusterpb.Resources{MemoryBytes: 256 << 20}
	a, err := (&yarn.Backend{}).Allocate(ctx, cluster.Request{
		Cluster: "doomed", Program: clustertest.Program(t),
		Reserve: &clusterpb.ReserveRequest{Backend: "yarn", Engine: engineOptions(h)}, Executors: []cluster.ExecutorRequest{
			{ID: "0", Task: cluster.TaskID{Role: "worker"}, Each: each},
			{ID: "1", Task: cluster.TaskID{Role: "worker", Index: 1}, Each: each},
		},
		AgentConfig: func(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
			return &clusterpb.AgentConfig{
				Identity: &clusterpb.AgentIdentity{ExecutorId: string(id), Attempt: int32(attempt)},
				Driver:   &clusterpb.DriverAddress{Coordinator: driver},
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

// logText collects emitted logs: headings, and lines with their label.
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

// readsLogs: logs of containers that ended before their agents joined are read from the nodes while the
// application runs, and from HDFS after it has ended.
func readsLogs(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	a, driver := allocateUnreachable(ctx, t, h)
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
				t.Errorf("the last lines of executor %s are %q", l.Executor, l.LastLines)
			}
		case <-ctx.Done():
			t.Fatal("no event reports the end of the agents")
		}
	}
	history, ok := a.(cluster.ApplicationHistory)
	if !ok {
		t.Fatal("the allocation has no ApplicationHistory")
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
		if found == nil || strings.Count(all.String(), why) != 2 ||
			!strings.Contains(all.String(), "# worker:0, attempt 0: ") || strings.Contains(all.String(), "LogType") {
			t.Fatalf("%s: %s", where, all.String())
		}
		for _, some := range []*logText{&one, &role, &last} {
			if !strings.Contains(some.String(), "[agent of worker:1] "+why) ||
				(some != &one) != strings.Contains(some.String(), "[agent of worker:0]") {
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
		if err := read(cluster.LogQuery{Task: "ps:0"}, &none); none.Len() > 0 || err != nil && !strings.Contains(err.Error(),
			"contain nothing of ps:0") && !strings.Contains(err.Error(), "nothing on HDFS matches") {
			t.Errorf("%s, of a task that does not exist: %v\n%s", where, err, none.String())
		}
		return found[1]
	}
	application, locations := a.ID(), history.LogLocations()
	living := check("it runs",
		func(q cluster.LogQuery, out *logText) error { return history.ContainerLogs(ctx, q, out.emit) })
	if err := a.Release(ctx, cluster.Succeeded, ""); err != nil {
		t.Fatal(err)
	}
	if l := history.Applications(); len(l) != 1 || l[0].ID != application || l[0].State != "finished" {
		t.Errorf("the applications are %v", l)
	}
	read := func(r *clusterpb.ReserveRequest, id string, locations []byte) func(cluster.LogQuery, *logText) error {
		return func(q cluster.LogQuery, out *logText) error {
			q.Allocation = id
			return containerlogs.History{}.ReadLogs(ctx, r, locations, q, out.emit)
		}
	}
	// Until the nodes have aggregated the logs, the error reports that, or the nodes still have the logs.
	var early logText
	if err := read(&clusterpb.ReserveRequest{Engine: engineOptions(h)}, application, locations)(cluster.LogQuery{},
		&early); err != nil && !strings.Contains(err.Error(), "are not there yet") {
		t.Errorf("at once: %v", err)
	}
	clustertest.WaitFor(t, "the logs on HDFS", func() bool {
		var out logText
		err := read(&clusterpb.ReserveRequest{Engine: engineOptions(h)}, application, nil)(cluster.LogQuery{}, &out)
		if err != nil && !strings.Contains(err.Error(), "are not there yet") {
			t.Errorf("it has ended: %v", err)
		}
		return err == nil && strings.Count(out.String(), why) == 2
	})
	if ended := check("it has ended",
		read(&clusterpb.ReserveRequest{Engine: engineOptions(h)}, application, nil)); ended != living {
		t.Errorf("worker:1 was %s, and is %s", living, ended)
	}
	if o := (containerlogs.History{}).Outcomes(ctx, &clusterpb.ReserveRequest{Engine: engineOptions(h)},
		[]string{application}); o[application] != "finished" {
		t.Errorf("the outcomes are %v", o)
	}
	// Logs that do not exist, or that belong to another user.
	unknown := application[:strings.LastIndex(application, "_")] + "_9999"
	for _, tt := range []struct {
		id, user, want string
	}{
		{unknown, "", "YARN does not know that application"},
		{application, "stranger", "are those of user "},
		{"application_x", "", "is not an application ID"},
	} {
		var out logText
		err := read(&clusterpb.ReserveRequest{Engine: engineOptions(h, "user", tt.user)}, tt.id,
			nil)(cluster.LogQuery{}, &out)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || out.Len() > 0 {
			t.Errorf("%s for %q: %v\n%s", tt.id, tt.user, err, out.String())
		}
	}
}

// reportsDisabledAggregation: if YARN aggregates no logs, the error names the property.
func reportsDisabledAggregation(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	awaitLogError(t, h, "yarn.log-aggregation-enable=true")
}

// reportsOtherLogFormat: for logs in Hadoop's other format the error names the command that reads them.
func reportsOtherLogFormat(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	awaitLogError(t, h, "another format than TFile", "yarn logs -applicationId application_")
}

// indexedLogFormat makes nodes write logs in Hadoop's indexed format.
var indexedLogFormat = map[string]string{
	"yarn.log-aggregation.file-formats": "IFile",
	"yarn.log-aggregation.file-controller.IFile.class": "org.apache.hadoop.yarn.logaggregation." +
		"filecontroller.ifile.LogAggregationIndexedFileController",
}

// awaitLogError waits for the error of reading an ended application's logs, and checks that it contains the
// wanted texts.
func awaitLogError(t *testing.T, h *hadooptest.Cluster, wanted ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	a, _ := allocateUnreachable(ctx, t, h)
	application := a.ID()
	for ended := false; !ended; {
		select {
		case e := <-a.Events():
			_, ended = e.(cluster.Lost)
		case <-ctx.Done():
			t.Fatal("no event reports the end of an agent")
		}
	}
	if err := a.Release(ctx, cluster.Succeeded, ""); err != nil {
		t.Fatal(err)
	}
	var err error
	var out logText
	clustertest.WaitFor(t, "the error about the logs", func() bool {
		err = containerlogs.History{}.ReadLogs(ctx, &clusterpb.ReserveRequest{Engine: engineOptions(h)}, nil,
			cluster.LogQuery{Allocation: application}, out.emit)
		return err != nil && !strings.Contains(err.Error(), "are not there yet")
	})
	for _, want := range wanted {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not in the error: %v\n%s", want, err, out.String())
		}
	}
}

// runCommand runs the command line and returns its output.
func runCommand(ctx context.Context, t testing.TB, h *hadooptest.Cluster, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, clustertest.Program(t), args...)
	cmd.Env = hadoopEnv(h)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checkHistory checks that the history of an ended batch run shows its outcome, and that its lines and its
// containers' logs can be read. It returns the application's ID.
func checkHistory(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string) (application string) {
	t.Helper()
	over := regexp.MustCompile(`(?m)^cluster ` + name +
		`: released .*\n(?s:.*) fails.py .* (application_\d+_\d+) finished`)
	clustertest.WaitFor(t, "the application's end", func() bool {
		history, err := runCommand(ctx, t, h, "history", "-c", name)
		if err != nil {
			t.Fatalf("history: %v\n%s", err, history)
		}
		found := over.FindStringSubmatch(history)
		if found != nil {
			application = found[1]
		}
		return found != nil
	})
	if lines, err := runCommand(ctx, t, h, "logs", "-c", name, "--task", "worker:0"); err != nil ||
		!strings.Contains(lines, "[worker:0] in a container there\n") {
		t.Errorf("logs: %v\n%s", err, lines)
	}
	clustertest.WaitFor(t, "the agent's logs", func() bool {
		some, err := runCommand(ctx, t, h, "logs", "-c", application, "--task", "worker:0", "-n", "1")
		if strings.Contains(some, "[driver]") || err != nil && !strings.Contains(some, "are not there yet") {
			t.Fatalf("the agent's logs: %v\n%s", err, some)
		}
		return err == nil
	})
	return application
}

// listsBothApplications: the history of a running cluster lists its ended application and its present one.
func listsBothApplications(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name, before, now string) {
	t.Helper()
	if out, err := runCommand(ctx, t, h, "history", "-c", name); err != nil ||
		!strings.Contains(out, before+" killed: by user ") || !strings.Contains(out, now+" running") {
		t.Errorf("history: %v\n%s", err, out)
	}
	if out, err := runCommand(ctx, t, h, "logs", "-c", now, "--task", "worker:0"); err != nil ||
		strings.Contains(out, "worker:1") {
		t.Errorf("logs of %s: %v\n%s", now, err, out)
	}
}

// runFailing runs a program that fails.
func runFailing(ctx context.Context, t *testing.T, h *hadooptest.Cluster, name string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fails.py"),
		[]byte("import sys\nprint('in a container', sys.argv[1])\nsys.exit(17)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"run", "--backend", "yarn", "--name", name, "--workers", "1", "--memory", "1g", "--python", clustertest.FindPython(t),
		"--no-zygote",
	}, args...)
	cmd := exec.CommandContext(ctx, clustertest.Program(t), append(args, "fails.py", "there")...)
	cmd.Dir, cmd.Env = dir, hadoopEnv(h)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 17 || !strings.Contains(string(out), "in a container there") {
		t.Errorf("the command ended with %v:\n%s", err, out)
	}
}

// keepsUnmanagedHistory: the history of a batch run whose driver ran on this host.
func keepsUnmanagedHistory(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	runFailing(ctx, t, h, "batch-plain")
	checkHistory(ctx, t, h, "batch-plain")
}
