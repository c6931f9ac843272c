package yarn

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// TestFailures: which completed containers count as a failure of their node.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		joined   bool
		unfit    string
		status   int32
		failures int
	}{
		{"its agent ended before it joined", false, "", 1, 1},
		{"its node could not prepare it", false, "", -1000, 1},
		{"its agent was unfit", true, "no GPU", 1, 1},
		{"its agent ended later", true, "", 137, 0},
		{"it was too small", false, "", -104, 0},
		{"it was preempted", false, "", -102, 0},
		{"its node was lost", false, "", -100, 0},
	} {
		a := newAllocation(site.Site{Conf: hadoopconf.New(nil)},
			cluster.Request{Executors: []cluster.ExecutorRequest{{ID: "0"}}}, application{}, saved{})
		id := &yarnpb.ContainerId{Id: proto.Int64(1)}
		a.executors["0"].container = &yarnpb.Container{Id: id, NodeId: &yarnpb.NodeId{Host: new("n7")}}
		if tt.joined {
			a.AgentJoined("0", -1, tt.unfit)
		}
		a.handleCompleted(&yarnpb.ContainerStatus{ContainerId: id, ExitStatus: &tt.status})
		if got := a.failures["n7"]; got != tt.failures {
			t.Errorf("%s: %d failures, want %d", tt.name, got, tt.failures)
		}
		a.stop()
	}
}

// TestClearExclusions: an agent that joins resets the failures of its node, and a user's reset clears all
// exclusions. A node that is not known to be dispensable is not excluded.
func TestClearExclusions(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)},
		cluster.Request{Executors: []cluster.ExecutorRequest{{ID: "0"}}}, application{},
		saved{Excluded: []string{"n9", "n8"}})
	defer a.stop()
	for range maxFailures + 1 {
		a.countFailure("n7", "it is broken")
	}
	if a.excluded["n7"] || a.failures["n7"] != maxFailures+1 {
		t.Errorf("n7 is excluded although YARN did not answer: %v", a.excluded)
	}
	a.executors["0"].container = &yarnpb.Container{NodeId: &yarnpb.NodeId{Host: new("n7")}}
	a.AgentJoined("0", 5, "") // another attempt's agent
	if a.failures["n7"] == 0 {
		t.Error("another attempt's agent resets the failures of the node")
	}
	a.AgentJoined("0", -1, "")
	if a.failures["n7"] != 0 {
		t.Error("the failures of a working node are kept")
	}
	if text := a.excludedMessage(); text != "; nodes n8, n9 are excluded" {
		t.Errorf("the message is %q", text)
	}
	if !strings.Contains(string(a.Saved()), `"left_out":["n8","n9"]`) {
		t.Errorf("saved is %s", a.Saved())
	}
	a.ClearExclusions()
	if text := a.excludedMessage(); text != "" {
		t.Errorf("after a reset the message is %q", text)
	}
}

// TestReplaceFailures: replacing an executor, for example by a user's reset while its agent starts, does not
// count as a failure of its node, unless its agent was unfit.
func TestReplaceFailures(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)},
		cluster.Request{Executors: []cluster.ExecutorRequest{{ID: "0"}}}, application{}, saved{})
	defer a.stop()
	a.shippedAt = time.Now()
	for want, unfit := range []string{"", "no GPU"} {
		x := a.executors["0"]
		x.container = &yarnpb.Container{NodeId: &yarnpb.NodeId{Host: new("n7")}}
		if unfit != "" {
			a.AgentJoined("0", x.attempt, unfit)
		}
		if err := a.Replace(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		if a.failures["n7"] != want {
			t.Errorf("after an agent that was %q: %d failures, want %d", unfit, a.failures["n7"], want)
		}
		if x.container != nil || x.unfit != "" {
			t.Error("the next attempt has the state of the last one")
		}
	}
}

// TestExcludeConcurrently: if two nodes fail at the same time, the second is excluded only if it is
// dispensable in addition to the first.
func TestExcludeConcurrently(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)}, cluster.Request{}, application{}, saved{})
	defer a.stop()
	alone := map[string]bool{} // the exclusions when both queried YARN
	if !a.exclude("n7", alone) || a.exclude("n8", alone) || a.exclude("n7", alone) {
		t.Errorf("excluded nodes are %v", a.excluded)
	}
	if !a.exclude("n8", map[string]bool{"n7": true}) || !a.excluded["n8"] {
		t.Errorf("excluded nodes are %v, n8 is dispensable", a.excluded)
	}
}

// TestHostAnswers: a node that was excluded because its host did not answer is used again when the host does.
func TestHostAnswers(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)}, cluster.Request{
		Executors: []cluster.ExecutorRequest{{ID: "0"}},
	}, application{}, saved{Excluded: []string{"n7", "n8"}})
	defer a.stop()
	a.avoided["host-7"] = "n7"
	a.HostAnswers("host-8") // it was excluded for another reason
	a.HostAnswers("host-7")
	if text := a.excludedMessage(); text != "; node n8 is excluded" {
		t.Errorf("the message is %q", text)
	}
	a.AvoidHost(t.Context(), "0", "host-9") // without a container
	if len(a.avoided) > 0 {
		t.Errorf("avoided are %v", a.avoided)
	}
}
