package verdict

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// FuzzJudge: whatever an agent sends, a verdict names only tasks that there are, in a line of limited length.
func FuzzJudge(f *testing.F) {
	seed := func(threads ...*clusterpb.ThreadStack) {
		data, err := proto.Marshal(&clusterpb.Snapshot{
			Task: "worker:0", Pid: 1, Source: clusterpb.FromPython, Threads: threads,
			Process: &clusterpb.ProcessState{State: "S"},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data, int64(7), 0.5)
	}
	seed()
	seed(&clusterpb.ThreadStack{Main: true, State: "S", WaitChannel: "pipe_read", Frames: []*clusterpb.Frame{
		{Function: "a.<locals>.b", File: "/home/me/x.py", Line: 3, Code: "f.read()"},
	}})
	seed(&clusterpb.ThreadStack{Main: true}, &clusterpb.ThreadStack{
		Frames: []*clusterpb.Frame{{Function: "all_reduce", File: "/run/python-0a/tfcluster/collective.py"}},
	})
	f.Fuzz(func(t *testing.T, first, second []byte, step int64, cpu float64) {
		var one, other clusterpb.Snapshot
		if proto.Unmarshal(first, &one) != nil || proto.Unmarshal(second, &other) != nil {
			t.Skip()
		}
		tasks := []Task{
			{
				ID: worker(0), State: "running", Step: step, Age: time.Duration(step),
				Snapshots: []*clusterpb.Snapshot{&one, &other}, CPU: cpu, GPU: cpu,
			},
			{
				ID: worker(1), State: "running", Step: 7, Age: time.Minute, Snapshots: []*clusterpb.Snapshot{&other},
				CPU: -1, GPU: -1,
			},
			{ID: cluster.TaskID{Role: cluster.PS}, State: "stopped", Age: -1},
		}
		v := Judge(Run{ID: 1, Silence: time.Minute}, tasks)
		reply := v.Reply(1, tasks)
		if len(reply.GetTasks()) != len(tasks) || len(v.Culprits) > len(tasks) || v.Certain && len(v.Culprits) == 0 {
			t.Errorf("the verdict is %v", reply)
		}
		if n := utf8.RuneCountInString(v.Text); n == 0 || n > 1500 {
			t.Errorf("the text has %d characters: %s", n, v.Text)
		}
		if clean := !strings.ContainsAny(string(first)+string(second), "\n"); clean && strings.Contains(v.Text, "\n") {
			t.Errorf("the text has several lines: %q", v.Text)
		}
	})
}
