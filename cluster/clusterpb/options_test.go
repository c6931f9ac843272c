package clusterpb

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestStartOfAnOlderClient: what a client of before protocol 2 says in fields of the
// request is found in the options, all of it.
func TestStartOfAnOlderClient(t *testing.T) {
	t.Parallel()
	program := &Program{Kind: Program_SCRIPT, Name: "train.py"}
	given := []*Shipped{{Name: "data"}}
	old := &StartRequest{
		Program: program, Again: true, Resume: "3", MaxRestarts: 2, StepTimeoutMillis: 60_000, RunTimeoutMillis: 7_200_000, Callback: true, KerasPatch: true,
		Replace: true, Env: map[string]string{"A": "1"}, Mode: "evaluate", Epochs: 5, WorkingDir: "/notebooks", StartIn: "/data", Given: given,
	}
	want := &StartRequest{
		Program: program, Again: true, Replace: true, Given: given,
		Options: &RunOptions{
			Mode: "evaluate", Epochs: 5, Env: map[string]string{"A": "1"}, Callback: true, KerasPatch: true, Resume: "3", MaxRestarts: 2,
			StepTimeoutMillis: 60_000, RunTimeoutMillis: 7_200_000, WorkingDir: "/notebooks", StartIn: "/data",
		},
	}
	// options and git came later.
	fields := old.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Name() != "options" && f.Name() != "git" && !old.ProtoReflect().Has(f) {
			t.Errorf("%s is not tried", f.Name())
		}
	}
	got := old.WithOptions()
	if !proto.Equal(got, want) {
		t.Errorf("it is\n%v, want\n%v", got, want)
	}
	if again := got.WithOptions(); again != got {
		t.Errorf("a request of this version is changed to %v", again)
	}
	if (*StartRequest)(nil).WithOptions() != nil {
		t.Error("no request is one")
	}
}
