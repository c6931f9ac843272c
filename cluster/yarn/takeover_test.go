package yarn_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// silentDriverRequest returns a request whose agent can dial a driver that never answers.
func silentDriverRequest(t *testing.T, h *hadooptest.Cluster, name string) cluster.Request {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return cluster.Request{
		Cluster: name, Program: clustertest.Program(t),
		Reserve: &clusterpb.ReserveRequest{Backend: "yarn", Engine: engineOptions(h)}, Executors: []cluster.ExecutorRequest{
			{ID: "0", Task: cluster.TaskID{Role: "worker"}, Each: &clusterpb.Resources{MemoryBytes: 256 << 20}},
		},
		AgentConfig: func(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
			return &clusterpb.AgentConfig{
				Identity: &clusterpb.AgentIdentity{ExecutorId: string(id), Attempt: int32(attempt)},
				Driver:   &clusterpb.DriverAddress{Coordinator: ln.Addr().String()},
			}, nil
		},
	}
}

// releaseAtEnd releases an allocation at the end of the test.
func releaseAtEnd(t *testing.T, a cluster.Allocation) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), clustertest.Deadline)
		defer cancel()
		if err := a.Release(ctx, cluster.Succeeded, ""); err != nil {
			t.Error(err)
		}
	})
}

// awaitContainer waits for an allocation's first container.
func awaitContainer(ctx context.Context, t *testing.T, a cluster.Allocation) {
	t.Helper()
	for {
		select {
		case e := <-a.Events():
			if _, ok := e.(cluster.Granted); ok {
				return
			}
		case <-ctx.Done():
			t.Fatal("no container was allocated")
		}
	}
}

// appState returns the state of an application.
func appState(ctx context.Context, t *testing.T, h *hadooptest.Cluster,
	application string,
) yarnpb.YarnApplicationState {
	t.Helper()
	conf, err := hadoopconf.Load(h.Conf)
	if err != nil {
		t.Fatal(err)
	}
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	client, err := protocol.NewClient(conf, user, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id, err := protocol.ParseApplication(application)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Report(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetYarnApplicationState()
}

// killsApplicationWithOldToken: if the saved token of a dead driver has expired, its application is killed
// before another one is submitted.
func killsApplicationWithOldToken(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	req := silentDriverRequest(t, h, "old-token")
	first, err := (&yarn.Backend{}).Allocate(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	releaseAtEnd(t, first)
	awaitContainer(ctx, t, first)
	application := first.ID()
	var saved map[string]json.RawMessage
	var old protocol.State
	if err = json.Unmarshal(first.Saved(), &saved); err == nil {
		err = json.Unmarshal(saved["state"], &old)
	}
	if err != nil || len(old.Token.Identifier) == 0 {
		t.Fatalf("saved is %v: %v", saved, err)
	}
	attempt := 2 + int(old.Token.Identifier[1]) // bytes of the first field; the second is the key's number
	old.Token.Identifier = append(old.Token.Identifier[:attempt], 2<<3, 1)
	raw, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	saved["state"] = raw
	if raw, err = json.Marshal(saved); err != nil {
		t.Fatal(err)
	}
	second, err := (&yarn.Backend{}).Recover(ctx, req, raw)
	if err != nil {
		t.Fatal(err)
	}
	releaseAtEnd(t, second)
	if s := appState(ctx, t, h, application); !protocol.Ended(s) || second.ID() == application {
		t.Errorf("%s is %s after the recovery into %s", application, s, second.ID())
	}
}

// survivesSilentManager: a ResourceManager that accepts calls and does not answer, as after a network
// failure, ends nothing. A container that is requested meanwhile is allocated when it answers again.
func survivesSilentManager(t *testing.T, h *hadooptest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	a, err := (&yarn.Backend{}).Allocate(ctx, silentDriverRequest(t, h, "silence"))
	if err != nil {
		t.Fatal(err)
	}
	releaseAtEnd(t, a)
	awaitContainer(ctx, t, a)
	h.ResourceManager.Pause()
	resume := sync.OnceFunc(h.ResourceManager.Resume)
	t.Cleanup(resume)
	if err := a.Replace(ctx, "0"); err != nil {
		t.Fatal(err)
	}
	for reported := false; ; {
		select {
		case e := <-a.Events():
			switch e := e.(type) {
			case cluster.Pending:
				if reported = strings.Contains(e.Why, "YARN unreachable"); reported {
					resume()
				}
				if strings.Contains(e.Why, "\n") {
					t.Errorf("the reason has several lines: %q", e.Why)
				}
			case cluster.Granted:
				if e.Attempt == 1 {
					return
				}
			case cluster.Terminated:
				t.Fatalf("the allocation was terminated: %s", e.Cause)
			}
		case <-ctx.Done():
			t.Fatalf("the outage was reported: %v; no container was allocated", reported)
		}
	}
}
