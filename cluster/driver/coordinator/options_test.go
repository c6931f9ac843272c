package coordinator

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestAgain: the last program runs with the options of the new start, but as what and where
// it ran before, and with the environment of both.
func TestAgain(t *testing.T) {
	t.Parallel()
	last := &clusterpb.StartRequest{
		Program: &clusterpb.Program{
			Kind: clusterpb.Program_SCRIPT, Name: "train.py", Body: &clusterpb.Blob{Data: []byte("pass\n")},
		},
		Given: []*clusterpb.Shipped{{Name: "old"}},
		Options: &clusterpb.RunOptions{
			Mode: "evaluate", Epochs: 5, Env: map[string]string{"A": "1", "B": "1"}, Callback: true, Resume: "3", MaxRestarts: 2,
			StepTimeoutMillis: 1, RunTimeoutMillis: 2, WorkingDir: "/notebooks", StartIn: "/data",
		},
	}
	kept := proto.CloneOf(last)
	later := &clusterpb.StartRequest{
		Again: true, Given: []*clusterpb.Shipped{{Name: "new"}},
		Options: &clusterpb.RunOptions{
			Mode: "train", Epochs: 1, Env: map[string]string{"B": "2"}, KerasPatch: true, Resume: "last",
			WorkingDir: "/elsewhere",
		},
	}
	unknown(later.GetOptions())
	want := &clusterpb.StartRequest{
		Program: last.GetProgram(), Given: later.GetGiven(),
		Options: &clusterpb.RunOptions{
			Mode: "evaluate", Epochs: 5, Env: map[string]string{"A": "1", "B": "2"}, KerasPatch: true, Resume: "last",
			WorkingDir: "/notebooks",
		},
	}
	unknown(want.GetOptions())
	if got := again(last, later); !proto.Equal(got, want) {
		t.Errorf("it is\n%v, want\n%v", got, want)
	}
	if !proto.Equal(last, kept) {
		t.Errorf("the last start has become %v", last)
	}
}

// TestOptionsReachAgents: whole, also what this coordinator does not know.
func TestOptionsReachAgents(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	conn := c.up("0", 1)
	options := &clusterpb.RunOptions{
		Mode: "train", Epochs: 3, Callback: true, StartIn: "/data", Env: map[string]string{"A": "1"},
	}
	unknown(options)
	rec, err := c.startRun(within(t),
		&clusterpb.StartRequest{Options: options, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}})
	if err != nil {
		t.Fatal(err)
	}
	c.enter(rec, 1)
	var launches int
	c.do(func() {
		for _, in := range conn.take() {
			if l := in.GetLaunch(); l != nil {
				launches++
				if !proto.Equal(l.GetOptions(), options) || l.GetEnv()["A"] != "1" {
					t.Errorf("it is launched with %v and the environment %v", l.GetOptions(), l.GetEnv())
				}
			}
		}
	})
	if launches != 1 {
		t.Errorf("it is launched %d times", launches)
	}
}

// unknown adds an option that no version has had yet.
func unknown(o *clusterpb.RunOptions) {
	o.ProtoReflect().SetUnknown(
		protoreflect.RawFields(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 7)))
}
