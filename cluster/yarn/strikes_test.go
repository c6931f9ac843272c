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

// TestStrikes: which ends of containers speak against their node.
func TestStrikes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		came    bool
		unfit   string
		status  int32
		strikes int
	}{
		{"its agent ended before it called", false, "", 1, 1},
		{"its node could not prepare it", false, "", -1000, 1},
		{"its agent was of no use", true, "no GPU", 1, 1},
		{"its agent ended later", true, "", 137, 0},
		{"it was too small", false, "", -104, 0},
		{"it was preempted", false, "", -102, 0},
		{"its node was lost", false, "", -100, 0},
	} {
		a := newAllocation(site.Site{Conf: hadoopconf.New(nil)}, cluster.Request{Executors: []cluster.ExecutorRequest{{ID: "0"}}}, application{}, saved{})
		id := &yarnpb.ContainerId{Id: proto.Int64(1)}
		a.executors["0"].container = &yarnpb.Container{Id: id, NodeId: &yarnpb.NodeId{Host: new("n7")}}
		if tt.came {
			a.AgentJoined("0", -1, tt.unfit)
		}
		a.ended(&yarnpb.ContainerStatus{ContainerId: id, ExitStatus: &tt.status})
		if got := a.strikes["n7"]; got != tt.strikes {
			t.Errorf("%s: %d strikes, want %d", tt.name, got, tt.strikes)
		}
		a.stop()
	}
}

// TestForgive: an agent that comes, and a person's reset, speak for a node; a node that
// could not be done without, as far as is known, is kept.
func TestForgive(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)}, cluster.Request{Executors: []cluster.ExecutorRequest{{ID: "0"}}}, application{}, saved{LeftOut: []string{"n9", "n8"}})
	defer a.stop()
	for range mostStrikes + 1 {
		a.strike("n7", "it is broken")
	}
	if a.leftOut["n7"] || a.strikes["n7"] != mostStrikes+1 {
		t.Errorf("without a word of YARN n7 is left out: %v", a.leftOut)
	}
	a.executors["0"].container = &yarnpb.Container{NodeId: &yarnpb.NodeId{Host: new("n7")}}
	a.AgentJoined("0", 5, "") // another's word
	if a.strikes["n7"] == 0 {
		t.Error("another attempt's agent speaks for the node")
	}
	a.AgentJoined("0", -1, "")
	if a.strikes["n7"] != 0 {
		t.Error("the strikes are kept of a node that works")
	}
	if words := a.leftOutWords(); words != "; nodes n8, n9 are left out" {
		t.Errorf("the words are %q", words)
	}
	if !strings.Contains(string(a.Saved()), `"left_out":["n8","n9"]`) {
		t.Errorf("saved is %s", a.Saved())
	}
	a.ClearExclusions()
	if words := a.leftOutWords(); words != "" {
		t.Errorf("after a reset the words are %q", words)
	}
}

// TestReplaceBlamesNobody: whoever has an executor replaced, such as a person's reset while
// its agent starts, says nothing of its node; an agent that was of no use does.
func TestReplaceBlamesNobody(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)}, cluster.Request{Executors: []cluster.ExecutorRequest{{ID: "0"}}}, application{}, saved{})
	defer a.stop()
	a.shipped = time.Now()
	for want, unfit := range []string{"", "no GPU"} {
		x := a.executors["0"]
		x.container = &yarnpb.Container{NodeId: &yarnpb.NodeId{Host: new("n7")}}
		if unfit != "" {
			a.AgentJoined("0", x.attempt, unfit)
		}
		if err := a.Replace(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		if a.strikes["n7"] != want {
			t.Errorf("of an agent that was %q: %d strikes, want %d", unfit, a.strikes["n7"], want)
		}
		if x.container != nil || x.unfit != "" {
			t.Error("the next attempt has what was the last one's")
		}
	}
}

// TestLeftOutAtOnce: of two nodes that are struck at the same time the second is left out
// only if it is dispensable beside the first.
func TestLeftOutAtOnce(t *testing.T) {
	t.Parallel()
	a := newAllocation(site.Site{Conf: hadoopconf.New(nil)}, cluster.Request{}, application{}, saved{})
	defer a.stop()
	alone := map[string]bool{} // what both have asked YARN about
	if !a.leaveOut("n7", alone) || a.leaveOut("n8", alone) || a.leaveOut("n7", alone) {
		t.Errorf("left out are %v", a.leftOut)
	}
	if !a.leaveOut("n8", map[string]bool{"n7": true}) || !a.leftOut["n8"] {
		t.Errorf("left out are %v, n8 is dispensable", a.leftOut)
	}
}
