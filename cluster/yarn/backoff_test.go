package yarn

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/gang"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// TestBackOff: released containers are not reported as lost, are not asked for during the delay, and
// the next driver continues the delay.
func TestBackOff(t *testing.T) {
	t.Parallel()
	conf := hadoopconf.New(map[string]string{"yarn.resourcemanager.scheduler.address": "127.0.0.1:1"})
	master, err := protocol.NewMaster(conf, protocol.State{}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	app := application{id: &yarnpb.ApplicationId{Id: new(int32(7)), ClusterTimestamp: new(int64(5))}, master: master}
	req := cluster.Request{Reserve: &clusterpb.ReserveRequest{TimeoutMillis: 60_000}}
	for i := range 3 {
		req.Executors = append(req.Executors, cluster.ExecutorRequest{ID: cluster.ExecutorID(fmt.Sprint(i))})
	}
	a := newAllocation(site.Site{}, req, app, saved{})
	defer a.stop()
	container := func(n int64) *yarnpb.Container {
		return &yarnpb.Container{Id: &yarnpb.ContainerId{
			Id: &n, AppAttemptId: &yarnpb.ApplicationAttemptId{ApplicationId: app.id, AttemptId: new(int32(1))},
		}}
	}
	for _, e := range req.Executors {
		a.requestContainer(e.ID)
	}
	a.executors["0"].container, a.executors["0"].requestID = container(1), 0
	a.AgentJoined("0", 0, "")
	a.executors["2"].unfit = "no GPU"
	if got := a.progress(); got != float32(1)/3 {
		t.Errorf("its progress is %v", got)
	}
	now := time.Now()
	for _, at := range []time.Time{now.Add(-2 * time.Second), now} {
		a.gang.Watch(at, 1, func() (string, error) { return "application_5_0006 of ada", nil })
	}
	if text := a.backOff(app, now); !strings.Contains(text,
		"unless more containers come, it releases its 1 of 3 in about ") ||
		!strings.Contains(text, " for application_5_0006 of ada, which is partially filled too, and asks again later") {
		t.Errorf("stuck, it reports %q", text)
	}
	e := a.releaseAll(app, now, 7*time.Second)
	if e.Attempts["0"] != 1 || e.Attempts["2"] != 1 || e.Why != "application_5_0007 released its 1 of 3 containers for "+
		"application_5_0006 of ada, which is partially filled too; it asks again in about 10 s" {
		t.Errorf("it sends %v", e)
	}
	if x := a.executors; x["0"].joined || x["2"].unfit != "" {
		t.Error("the state of released executors is kept for the next ones")
	}
	a.reportLost(container(1).GetId(), cluster.Lost{Cause: "released"}, true)
	select {
	case e := <-a.Events():
		t.Errorf("it sends %v for a released container", e)
	default:
	}
	if text := a.backOff(app, now.Add(time.Second)); text != "its containers were released for application_5_0006 of "+
		"ada, which is partially filled too; it asks again in about 10 s" {
		t.Errorf("during the delay it reports %q", text)
	}
	var s saved
	if err := json.Unmarshal(a.Saved(), &s); err != nil {
		t.Fatal(err)
	}
	next := newAllocation(site.Site{}, req, app, s)
	defer next.stop()
	if next.backoff != (gang.Backoff{Releases: 1, Until: next.backoff.Until, For: "application_5_0006 of ada"}) ||
		!next.backoff.Until.Equal(now.Add(7*time.Second)) {
		t.Errorf("the next driver continues with %v", next.backoff)
	}
	if text := a.backOff(app, now.Add(8*time.Second)); text != "" || !a.backoff.Until.IsZero() {
		t.Errorf("after the delay it reports %q", text)
	}
	for i, x := range a.executors {
		x.container = container(int64(len(i)))
	}
	a.countWhole()
	a.executors["1"].container = nil
	if got := a.progress(); got != 1 {
		t.Errorf("the progress of a reservation that was filled is %v", got)
	}
	a.requestContainer("1")
	if text := a.backOff(app, now.Add(time.Hour)); text != "" {
		t.Errorf("a reservation that was filled reports %q", text)
	}
}

// TestWholeAgain: a cluster that was complete in an earlier application counts as complete without its
// sidecars; one that never was needs all its executors.
func TestWholeAgain(t *testing.T) {
	t.Parallel()
	req := cluster.Request{Reserve: &clusterpb.ReserveRequest{
		Roles: []*clusterpb.Role{{Name: "worker", Count: 1}, {Name: "evaluator", Count: 1}},
	}}
	for i, role := range []string{"worker", "evaluator"} {
		req.Executors = append(req.Executors,
			cluster.ExecutorRequest{ID: cluster.ExecutorID(fmt.Sprint(i)), Task: cluster.TaskID{Role: role}})
	}
	for _, tt := range []struct {
		again bool
		lacks cluster.ExecutorID
		whole bool
	}{{false, "1", false}, {true, "1", true}, {true, "0", false}} {
		a := newAllocation(site.Site{}, req, application{}, saved{Backoff: gang.Backoff{Again: tt.again}})
		for id, x := range a.executors {
			if id != tt.lacks {
				x.container = &yarnpb.Container{}
			}
		}
		if a.countWhole(); a.backoff.Whole != tt.whole {
			t.Errorf("%v: it is whole: %v", tt, a.backoff.Whole)
		}
		a.stop()
	}
}
