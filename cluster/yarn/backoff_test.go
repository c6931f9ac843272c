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

// TestGiveUpHalf: what was given back is not missed as lost, is not asked for during the
// rest, and another driver goes on with the rest.
func TestGiveUpHalf(t *testing.T) {
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
		return &yarnpb.Container{Id: &yarnpb.ContainerId{Id: &n, AppAttemptId: &yarnpb.ApplicationAttemptId{ApplicationId: app.id, AttemptId: new(int32(1))}}}
	}
	for _, e := range req.Executors {
		a.want(e.ID)
	}
	a.executors["0"].container, a.executors["0"].wish = container(1), 0
	a.AgentJoined("0", 0, "")
	a.executors["2"].unfit = "no GPU"
	if got := a.progress(); got != float32(1)/3 {
		t.Errorf("it says %v of itself", got)
	}
	now := time.Now()
	other := gang.Competitors{All: 1, Oldest: "application_5_0006 of ada, which began before it", Full: map[string]float32{"application_5_0006": 0.5}}
	for _, at := range []time.Time{now.Add(-2 * time.Second), now} {
		a.gang.Watch(at, 1, gang.Backoff{}, func() (gang.Competitors, error) { return other, nil })
	}
	if words := a.giveWay(app, now); !strings.Contains(words, ", unless more come, it gives the 1 of 3 containers that it has back for application_5_0006 of ada, which began before it and is half filled too, and asks again") {
		t.Errorf("it has patience and says %q", words)
	}
	e := a.giveUpHalf(app, now, 7*time.Second)
	if e.Attempts["0"] != 1 || e.Attempts["2"] != 1 || !strings.Contains(e.Why, "application_5_0007 gave the 1 of 3 containers that it had back for application_5_0006 of ada, which began before it and is half filled too; it asks again in about 10 s") {
		t.Errorf("it tells %v", e)
	}
	if x := a.executors; x["0"].came || x["2"].unfit != "" {
		t.Error("what was said of agents that are given back is said of the next ones")
	}
	a.lose(container(1).GetId(), "released", true)
	select {
	case e := <-a.Events():
		t.Errorf("it tells %v of what it gave back", e)
	default:
	}
	if words := a.giveWay(app, now.Add(time.Second)); !strings.Contains(words, "given back for application_5_0006 of ada, which began before it and is half filled too; it asks again in about 10 s") {
		t.Errorf("it rests and says %q", words)
	}
	var s saved
	if err := json.Unmarshal(a.Saved(), &s); err != nil {
		t.Fatal(err)
	}
	next := newAllocation(site.Site{}, req, app, s)
	defer next.stop()
	if next.backoff.Given != 1 || !next.backoff.Until.Equal(now.Add(7*time.Second)) || next.backoff.Whole || next.backoff.Full["application_5_0006"] != 0.5 {
		t.Errorf("another driver goes on with %v", next.backoff)
	}
	a.gang.Resumes(now.Add(8*time.Second), a.backoff, func() (gang.Competitors, error) { return gang.Competitors{All: 1}, nil })
	if words := a.giveWay(app, now.Add(8*time.Second)); !strings.Contains(words, "it asks again when that is filled") {
		t.Errorf("while the other is filled it says %q", words)
	}
	a.gang.Competitors = gang.Competitors{}
	if words := a.giveWay(app, now.Add(8*time.Second)); words != "" || !a.backoff.Until.IsZero() {
		t.Errorf("after its rest it says %q", words)
	}
	for i, x := range a.executors {
		x.container = container(int64(len(i)))
	}
	a.countWhole()
	a.executors["1"].container = nil
	if got := a.progress(); got != 1 {
		t.Errorf("who was whole says %v of itself", got)
	}
	a.want("1")
	if words := a.giveWay(app, now.Add(time.Hour)); words != "" {
		t.Errorf("who was whole gives back: %s", words)
	}
}

// TestWholeAgain: what goes on in another application may be a run without its sidecars;
// a cluster that was never ready cannot be.
func TestWholeAgain(t *testing.T) {
	t.Parallel()
	req := cluster.Request{Reserve: &clusterpb.ReserveRequest{Roles: []*clusterpb.Role{{Name: "worker", Count: 1}, {Name: "evaluator", Count: 1}}}}
	for i, role := range []string{"worker", "evaluator"} {
		req.Executors = append(req.Executors, cluster.ExecutorRequest{ID: cluster.ExecutorID(fmt.Sprint(i)), Task: cluster.TaskID{Role: role}})
	}
	for _, tt := range []struct {
		again bool
		lacks cluster.ExecutorID
		whole bool
	}{{false, "1", false}, {true, "1", true}, {true, "0", false}} {
		a := newAllocation(site.Site{}, req, application{}, saved{Turns: gang.Backoff{Again: tt.again}})
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
