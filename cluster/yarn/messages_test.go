package yarn

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

func TestPendingMessage(t *testing.T) {
	t.Parallel()
	x := func(label string) *executor {
		return &executor{
			request: cluster.ExecutorRequest{Each: &clusterpb.Resources{MemoryBytes: 3 << 30, Cpus: 2, NodeLabel: label}},
		}
	}
	for _, tt := range []struct {
		x    *executor
		left int64
		want string
	}{
		{x(""), 1024, "queue ml has 1024 MiB and 4 vcores left, it needs 3072 MiB and 2 vcores"},
		{x(""), 9000, "no node has 3072 MiB and 2 vcores free (queue ml has 9000 MiB and 4 vcores left)"},
		{x("gpu"), 9000, "queue ml has 9000 MiB and 4 vcores left, it needs 3072 MiB and 2 vcores on a node labelled gpu"},
	} {
		if got := pendingMessage(tt.x, "ml", protocol.MemoryAndCores(tt.left, 4, nil)); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// diagnostics are those of a NodeManager 3.3.6 for a process that exited with code 97.
const diagnostics = `[2026-11-21 22:00:00.123]Exception from container-launch.
Container id: container_1_0001_01_000002
Exit code: 97

[2026-11-21 22:00:00.125]Container exited with a non-zero exit code 97. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
time=2026-11-21T22:00:00 level=INFO msg=begins
tfcluster agent: cannot dial the cluster's driver at 10.0.0.9:4711: connection refused


[2026-11-21 22:00:00.126]Container exited with a non-zero exit code 97. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
`

func TestExitCause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code        int32
		diagnostics string
		want        string
		by          cluster.LostBy
	}{
		{
			-104, "[2026-11-21 22:00:00.123]Container is running 9 B beyond the limit.\nDump", "it used more memory than its " +
				"container may: ask for more memory: Container is running 9 B beyond the limit.", cluster.LostByMemory,
		},
		{
			1, diagnostics, "its agent ended with code 1: tfcluster agent: cannot dial the cluster's driver at 10.0.0.9:4711: " +
				"connection refused", cluster.LostByError,
		},
		{137, "", "its agent was killed by signal 9", cluster.LostByEngine},
		{-1000, "", "its node could not prepare its container", cluster.LostByError},
		{
			-100, "Container released on a *lost* node",
			"its node was lost, or released the container: Container released on a *lost* node", cluster.LostByHost,
		},
		{-102, "", "YARN gave its container to another application (preempted)", cluster.LostByHost},
	} {
		if got := exitCause(&yarnpb.ContainerStatus{ExitStatus: &tt.code, Diagnostics: &tt.diagnostics}); got != tt.want {
			t.Errorf("%d %q gives\n%q, want\n%q", tt.code, tt.diagnostics, got, tt.want)
		}
		if by := lostBy(tt.code); by != tt.by {
			t.Errorf("%d: lost by %d, want %d", tt.code, by, tt.by)
		}
	}
}

// TestStartError: the error of a node that the driver cannot reach has one line, with advice.
func TestStartError(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // it accepts connections and never answers
	port := int32(ln.Addr().(*net.TCPAddr).Port)
	node := &yarnpb.NodeId{Host: new("127.0.0.1"), Port: &port}
	nodes := protocol.NewNodes(hadoopconf.New(nil), time.Millisecond)
	defer nodes.Close()
	nodes.Tokens([]*yarnpb.NMToken{{NodeId: node, Token: &yarnpb.Token{Kind: new("NMToken")}}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	got := startError(nodes.Start(ctx, &yarnpb.Container{NodeId: node}, nil))
	if !strings.Contains(got, ln.Addr().String()) || !strings.Contains(got, "yarn.nodemanager.address") ||
		strings.Contains(got, "\n") {
		t.Errorf("the error is %q", got)
	}
	if got := startError(fmt.Errorf("start: %w: not Hadoop's", protocol.ErrUnusable)); strings.Contains(got, "firewall") {
		t.Errorf("a node that answers is said to be unreachable: %q", got)
	}
}

// TestClassify: an unknown exception is not permanent; the exceptions that YARN raises for a master that it
// no longer accepts are.
func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, transient},
		{fmt.Errorf("call: %w", protocol.ErrUnreachable), transient},
		{fmt.Errorf("call: %w", protocol.ErrLabel), refusal},
		{fmt.Errorf("call: %w", protocol.ErrGone), final},
		{fmt.Errorf("call: %w", protocol.ErrReplaced), final},
		{fmt.Errorf("call: %w", ipc.NewRemoteError("java.lang.NullPointerException", "")), unknown},
	} {
		if got := classify(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestPriorities: containers of one kind have the same priority, those of different kinds different ones.
func TestPriorities(t *testing.T) {
	t.Parallel()
	var req cluster.Request
	for i, each := range []*clusterpb.Resources{
		{}, {MemoryBytes: defaultMemory << 20}, {Gpus: 1}, {MemoryBytes: 3 << 30}, {NodeLabel: "fast"}, {Gpus: 1}, nil,
	} {
		req.Executors = append(req.Executors, cluster.ExecutorRequest{ID: cluster.ExecutorID(rune('0' + i)), Each: each})
	}
	a := newAllocation(site.Site{}, req, application{}, saved{})
	defer a.stop()
	for i, want := range []int32{1, 1, 2, 3, 4, 2, 1} {
		if got := a.containerRequest(a.executors[req.Executors[i].ID]).Priority; got != want {
			t.Errorf("executor %d has priority %d, want %d", i, got, want)
		}
	}
}

func TestUnreachableMessage(t *testing.T) {
	t.Parallel()
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	got := unreachableMessage("n7", "10.0.0.9:4711", diagnostics, false)
	want := "node n7 cannot dial the cluster's driver at 10.0.0.9:4711 on " + here + ": connection refused; " +
		"--advertise HOST[:PORTS] names an address of it that nodes can dial, and with --managed the driver runs on a node"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHandleUnreachable: an address that no agent can dial ends the allocation; a node that cannot dial it
// does not.
func TestHandleUnreachable(t *testing.T) {
	t.Parallel()
	id := func(n int64) *yarnpb.ContainerId { return &yarnpb.ContainerId{Id: &n} }
	for _, tt := range []struct {
		name       string
		executors  int
		late       bool // the last executor's agent runs for a while
		cut        []int64
		terminated []bool
	}{
		{"one of one", 1, false, []int64{0}, []bool{true}},
		{"two of two", 2, false, []int64{0, 1}, []bool{false, true}},
		{"three of five", 5, false, []int64{0, 1, 2}, []bool{false, false, true}},
		{"one works", 4, true, []int64{0, 1, 2}, []bool{false, false, false}},
	} {
		a := &allocation{requests: requests{executors: map[cluster.ExecutorID]*executor{}}}
		for i := range tt.executors {
			x := &executor{
				container: &yarnpb.Container{Id: id(int64(i)), NodeId: &yarnpb.NodeId{Host: new("n")}}, launched: time.Now(),
			}
			if tt.late && i == tt.executors-1 {
				x.launched = time.Time{}
			}
			a.executors[cluster.ExecutorID(rune('a'+i))] = x
		}
		for i, n := range tt.cut {
			if cause, terminated := a.handleUnreachable(&yarnpb.ContainerStatus{ContainerId: id(n)}); terminated !=
				tt.terminated[i] || cause == "" {
				t.Errorf("%s: the end of container %d reports %q, terminated is %v", tt.name, n, cause, terminated)
			}
		}
	}
}

func TestCheckNodes(t *testing.T) {
	t.Parallel()
	node := func(memory, gpus int64, labels ...string) *yarnpb.NodeReport {
		return &yarnpb.NodeReport{
			Capability: protocol.MemoryAndCores(memory, 8, map[string]int64{gpuType: gpus}), NodeLabels: labels,
		}
	}
	nodes := []*yarnpb.NodeReport{node(4096, 0), node(8192, 0), node(4096, 2, "gpu")}
	for _, tt := range []struct {
		nodes []*yarnpb.NodeReport
		each  *clusterpb.Resources
		want  string // "" for none
	}{
		{nodes, &clusterpb.Resources{MemoryBytes: 8 << 30}, ""},
		{
			nodes, &clusterpb.Resources{MemoryBytes: 9 << 30}, "worker:0 requests 9216 MiB and 1 vcores, " +
				"but no node has that much: the most that one has is 8192 MiB, 8 vcores and 2 GPUs; request less",
		},
		{
			nodes, &clusterpb.Resources{MemoryBytes: 5 << 30, NodeLabel: "gpu"}, "worker:0 requests 5120 MiB and 1 vcores, " +
				"but no node labelled gpu has that much: the most that one has is 4096 MiB, 8 vcores and 2 GPUs; request less",
		},
		{
			nodes, &clusterpb.Resources{NodeLabel: "fast"},
			"worker:0 needs a node labelled fast, but no node that is up is one: give another label, or wait for such a node",
		},
		{nil, &clusterpb.Resources{MemoryBytes: 9 << 30}, ""},
	} {
		err := checkNodes(cluster.Request{
			Executors: []cluster.ExecutorRequest{{Task: cluster.TaskID{Role: "worker"}, Each: tt.each}},
		}, tt.nodes)
		if got := errorText(err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.each, got, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestNoYARN: the error for a missing or unreachable Hadoop has one line, and comes at once.
func TestNoYARN(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", "")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	ln.Close()
	conf := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "core-site.xml"), []byte("<configuration>"+text+"</configuration>"),
			0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, tt := range []struct {
		name, dir, want string
		advertises      bool
	}{
		{"no such folder", "/no/conf", "HADOOP_CONF_DIR=/no/conf has no core-site.xml", false},
		{"no ResourceManager named", conf(""), "names no ResourceManager", false},
		{
			"no connection", conf("<property><name>yarn.resourcemanager.address</name><value>" + dead + "</value></property>"),
			"no ResourceManager answers at " + dead + ": connect: connection refused; see that it runs", true,
		},
	} {
		r := &clusterpb.ReserveRequest{Engine: map[string]string{cluster.EngineConfDir: tt.dir}}
		b := &Backend{}
		host, err := b.Advertise(t.Context(), r)
		if (err == nil) != tt.advertises || (err == nil && host != "127.0.0.1") {
			t.Errorf("%s: the advertised address is %s: %v", tt.name, host, err)
		}
		_, err = b.Allocate(t.Context(), cluster.Request{Reserve: r})
		if got := errorText(err); !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if fs := Diagnose(t.Context(), r); !slices.ContainsFunc(fs,
			func(f cluster.Check) bool { return strings.Contains(f.Found, tt.want) && f.Remedy != "" }) {
			t.Errorf("%s: diagnosed as %v", tt.name, fs)
		}
	}
	if fs := Diagnose(t.Context(), &clusterpb.ReserveRequest{}); len(fs) != 1 || fs[0].Remedy != "" {
		t.Errorf("no Hadoop is diagnosed as %v", fs)
	}
}
