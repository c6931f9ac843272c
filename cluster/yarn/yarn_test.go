package yarn_test

import (
	"context"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, engine)) }

// startHadoop starts a Hadoop of the test's own. The test runs in parallel with others.
func startHadoop(t *testing.T, o hadooptest.Options) *hadooptest.Cluster {
	t.Helper()
	clustertest.FindPython(t) // skips the test before Hadoop is started
	t.Parallel()
	return hadooptest.Start(t, o)
}

// engineOptions returns the engine options of a reservation on h, and further ones by name and value.
func engineOptions(h *hadooptest.Cluster, more ...string) map[string]string {
	engine := map[string]string{"conf-dir": h.Conf}
	for i := 0; i+1 < len(more); i += 2 {
		engine[more[i]] = more[i+1]
	}
	return engine
}

// hadoopEnv returns the environment of a command that uses h.
func hadoopEnv(h *hadooptest.Cluster) []string {
	return append(os.Environ(), "HADOOP_CONF_DIR="+h.Conf)
}

func harness(t testing.TB, h *hadooptest.Cluster) clustertest.Harness {
	t.Helper()
	return clustertest.Harness{
		Program: clustertest.Program(t), Python: clustertest.FindPython(t),
		Reserve: &clusterpb.ReserveRequest{Backend: "yarn", IdleMillis: 60_000, Engine: engineOptions(h)},
	}
}

// engine is the Hadoop of tests that neither kill its daemons nor need other settings.
var engine = clustertest.Share(hadooptest.Shared)

// sharedHadoop returns the shared Hadoop. The test runs in parallel with others.
func sharedHadoop(t *testing.T) *hadooptest.Cluster {
	t.Helper()
	clustertest.FindPython(t) // skips the test before Hadoop is started
	t.Parallel()
	return engine.Get(t)
}

func TestSuite(t *testing.T) {
	h := sharedHadoop(t)
	clustertest.Suite(t, harness(t, h))
	t.Run("own folder", func(t *testing.T) { clustertest.OwnFolder(t, harness(t, h)) })
	t.Run("container logs are read", func(t *testing.T) { readsLogs(t, h) })
	t.Run("the history of a batch run", func(t *testing.T) { keepsUnmanagedHistory(t, h) })
	t.Run("agents find a driver that has moved", func(t *testing.T) { findsMovedDriver(t, h) })
}

// hello is a program that succeeds.
const hello = "print('out of it')"

// forever is a program that does not end.
const forever = "import time\nprint('here', flush=True)\nwhile True: time.sleep(0.05)"

// TestRefusals: requests that this YARN cannot fulfil fail at once, with an error of one line.
func TestRefusals(t *testing.T) {
	site := maps.Clone(indexedLogFormat)
	maps.Copy(site, map[string]string{
		// The queue ml activates one application at a time.
		"yarn.scheduler.capacity.root.ml.maximum-am-resource-percent": "0.0001",
		"yarn.scheduler.maximum-allocation-vcores":                    "4",
	})
	h := startHadoop(t, hadooptest.Options{
		HDFS: true, NodeManagers: 2, GPUs: 2, GPUPlugins: 1, Labels: []string{"", "fast"}, Site: site,
	})
	t.Run("artifacts that were not used for long are removed", func(t *testing.T) { cleansCache(t, h) })
	t.Run("a node without the GPUs that YARN expects", func(t *testing.T) { reportsMissingGPUs(t, h, 1, "fast") })
	t.Run("GPUs that the node's plugin discovered", func(t *testing.T) { sharesGPUs(t, h, 0, "") })
	t.Run("GPUs as a number", func(t *testing.T) { sharesGPUs(t, h, 1, "fast") })
	for _, tt := range []struct {
		name   string
		change func(*clusterpb.ReserveRequest)
		want   string
	}{
		{"memory", func(r *clusterpb.ReserveRequest) {
			r.Roles[0].Each = &clusterpb.Resources{MemoryBytes: 9 << 30}
		}, "requests 9216 MiB and 1 vcores, but no node has that much: the most that one has is 8192 MiB, 8 vcores"},
		{"cores", func(r *clusterpb.ReserveRequest) {
			r.Roles[0].Each = &clusterpb.Resources{Cpus: 5}
		}, "requests 5 vcores, but a container of this YARN can have at most 4 (yarn.scheduler.maximum-allocation-vcores)"},
		{"GPUs", func(r *clusterpb.ReserveRequest) {
			r.Roles[0].Each = &clusterpb.Resources{Gpus: 3}
		}, "no node has that much: the most that one has is 8192 MiB, 8 vcores and 2 GPUs"},
		{"label", func(r *clusterpb.ReserveRequest) {
			r.Roles[0].Each = &clusterpb.Resources{NodeLabel: "slow"}
		}, "give a label that it knows: fast"},
		{"queue", func(r *clusterpb.ReserveRequest) { r.Engine = engineOptions(h, "queue", "nobody") }, "nobody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := harness(t, h).Launch(t, "worker=1", tt.change).Reserved()
			if !strings.Contains(f.GetSummary(), tt.want) || strings.Contains(f.GetSummary(), "\n") {
				t.Errorf("the failure is %v, want %q", f, tt.want)
			}
		})
	}
	t.Run("a full queue", func(t *testing.T) { reportsFullQueue(t, h) })
	t.Run("a driver's address that no node can dial", func(t *testing.T) { reportsUnreachableDriver(t, h) })
	t.Run("logs of the other format are read with YARN's own command", func(t *testing.T) { reportsOtherLogFormat(t, h) })
	t.Run("an application that cannot be recovered is killed", func(t *testing.T) { killsApplicationWithOldToken(t, h) })
}

// reportsFullQueue: the error at the timeout names the executor that waits for a full queue and the reason
// in one line, and everything is released.
func reportsFullQueue(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ml := func(limit time.Duration) func(*clusterpb.ReserveRequest) {
		return func(r *clusterpb.ReserveRequest) {
			r.Engine, r.TimeoutMillis = engineOptions(h, "queue", "ml"), limit.Milliseconds()
			r.Roles[0].Each = &clusterpb.Resources{MemoryBytes: 3 << 30}
		}
	}
	refused := func(launch func(limit time.Duration) *clustertest.Cluster, wanted ...string) {
		var f *clusterpb.Failure
		var missing []string
		for _, limit := range []time.Duration{10 * time.Second, 50 * time.Second} { // a loaded YARN says why later
			f = launch(limit).Reserved()
			missing = slices.DeleteFunc(slices.Clone(wanted), func(want string) bool {
				return strings.Contains(f.GetSummary(), strings.ReplaceAll(want, "LIMIT", limit.String()))
			})
			if len(missing) == 0 && !strings.Contains(f.GetSummary(), "\n") {
				return
			}
		}
		t.Errorf("%q is not in the one line: %v", missing, f)
	}
	first := harness(t, h).Launch(t, "worker=2", ml(clustertest.Deadline)) // the queue has room for one of its containers
	awaitApplication(t, first.Name)
	clustertest.WaitFor(t, "the message that the queue is full", func() bool {
		st, err := first.Status(t.Context(), &clusterpb.StatusRequest{})
		return err == nil && slices.ContainsFunc(st.GetExecutors(), func(x *clusterpb.ExecutorStatus) bool {
			return strings.Contains(x.GetCause(), "queue ml has") &&
				strings.Contains(x.GetCause(), "it needs 3072 MiB and 1 vcores")
		})
	})
	refused(func(limit time.Duration) *clustertest.Cluster {
		return harness(t, h).Launch(t, "worker=1", ml(limit))
	}, "worker:0", "queue ml runs as many applications as its limits allow")
	refused(func(limit time.Duration) *clustertest.Cluster {
		return managed(t, h).Launch(t, "worker=1", func(r *clusterpb.ReserveRequest) {
			r.Engine, r.TimeoutMillis = engineOptions(h, "queue", "ml", "managed", "true"), limit.Milliseconds()
		})
	}, "not reserved after LIMIT", "waits in queue ml")
}

// awaitApplication waits until a cluster has its application.
func awaitApplication(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(clustertest.Deadline); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s, err := state.Load(name); err == nil && s.Allocation != "" {
			return
		}
	}
	t.Fatal("the cluster got no application")
}

// reportsUnreachableDriver: agents that cannot dial the driver end the reservation at once. The error has
// one line and names both hosts, and the agents' logs can be read.
func reportsUnreachableDriver(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	ln.Close()
	each := &clusterpb.Resources{MemoryBytes: 256 << 20}
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	a, err := (&yarn.Backend{}).Allocate(ctx, cluster.Request{
		Cluster: "unreachable", Program: clustertest.Program(t),
		Reserve: &clusterpb.ReserveRequest{Backend: "yarn", Engine: engineOptions(h)}, Executors: []cluster.ExecutorRequest{
			{ID: "0", Task: cluster.TaskID{Role: "worker"}, Each: each},
			{ID: "1", Task: cluster.TaskID{Role: "worker", Index: 1}, Each: each},
		},
		AgentConfig: func(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
			return &clusterpb.AgentConfig{
				Identity: &clusterpb.AgentIdentity{ExecutorId: string(id), Attempt: int32(attempt)},
				Driver:   &clusterpb.DriverAddress{Coordinator: dead},
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
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for over := false; !over; {
		select {
		case e := <-a.Events():
			o, ok := e.(cluster.Terminated)
			over = ok
			for _, want := range []string{
				"node 127.", "cannot dial the cluster's driver at " + dead + " on " + here, "connection refused",
				"--advertise HOST[:PORTS]",
			} {
				if ok && !strings.Contains(o.Cause, want) {
					t.Errorf("%q is not in the cause: %s", want, o.Cause)
				}
			}
		case <-ctx.Done():
			t.Fatal("no event reports that the driver cannot be dialled")
		}
	}
	log, err := a.(cluster.AgentLogs).Logs(ctx, "0")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if b, err := io.ReadAll(log); err != nil ||
		!strings.Contains(string(b), "tfcluster agent: cannot dial the cluster's driver at "+dead) {
		t.Errorf("the agent's log is %q: %v", b, err)
	}
}

// cleansCache: of the artifacts that were not used for a day, only the newest few are kept.
func cleansCache(t *testing.T, h *hadooptest.Cluster) {
	conf, err := hadoopconf.Load(h.Conf)
	if err != nil {
		t.Fatal(err)
	}
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	store, err := hdfs.New(hdfs.Config{Conf: conf, User: user})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	for i, name := range []string{"b", "c", "d", "e", "f", "used"} {
		if err := store.Write(ctx, ".tfcluster/cache/"+name+"/tfcluster-1", strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
		if err := store.Touch(ctx, ".tfcluster/cache/"+name, time.Now().Add(time.Duration(i-6)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		later time.Duration
		want  string
	}{{time.Hour, "b c d e f used"}, {25 * time.Hour, "d e f used"}} {
		if err := yarn.Clean(ctx, store, time.Now().Add(step.later)); err != nil {
			t.Fatal(err)
		}
		infos, err := store.List(ctx, ".tfcluster/cache")
		var left []string
		for _, i := range infos {
			left = append(left, i.Name())
		}
		if got := strings.Join(left, " "); err != nil || got != step.want {
			t.Errorf("%s later the cache has %q: %v", step.later, got, err)
		}
	}
}
