package magics

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/session"
)

// stacksReplies are snapshots of a run that hangs: worker:1 reads a file, the others wait for it.
func stacksReplies() []*clusterpb.StacksReply {
	frame := func(function, file string, line int32, code string) *clusterpb.Frame {
		return &clusterpb.Frame{Function: function, File: file, Line: line, Code: code}
	}
	program := frame("main_fun", "/home/me/mnist.py", 60, "model.fit(data, epochs=2)")
	keras := func(names ...string) []*clusterpb.Frame {
		var frames []*clusterpb.Frame
		for i, n := range names {
			frames = append(frames, frame(n, "/usr/lib/python3.12/site-packages/keras/src/"+n+".py", int32(10+i), ""))
		}
		return frames
	}
	idle := &clusterpb.ThreadStack{
		Id: 7, NativeId: 107, Name: "ThreadPoolExecutor-0_0", State: "S", WaitChannel: "futex_do_wait",
		Frames: []*clusterpb.Frame{
			frame("wait", "/usr/lib/python3.12/threading.py", 355, "waiter.acquire()"),
			frame("Thread.run", "/usr/lib/python3.12/threading.py", 1012, ""),
		},
	}
	snapshot := func(task string, main *clusterpb.ThreadStack, more ...*clusterpb.ThreadStack) *clusterpb.Snapshot {
		main.Main, main.Name = true, "MainThread"
		return &clusterpb.Snapshot{
			Task: task, Host: "host0", ExecutorId: "0", Run: 1, Pid: 100, Source: clusterpb.FromPython,
			Threads: append([]*clusterpb.ThreadStack{main}, more...), Process: &clusterpb.ProcessState{
				Pid: 100, State: main.GetState(), WaitChannel: main.GetWaitChannel(), CpuPercent: main.GetCpuPercent(),
				RssBytes: 1 << 30, Threads: 20, Command: "python",
			},
		}
	}
	waiting := func(cpu float32) *clusterpb.ThreadStack {
		return &clusterpb.ThreadStack{
			Id: 1, NativeId: 100, State: "S", WaitChannel: "futex_do_wait", CpuPercent: cpu,
			Frames: append(keras("execute", "step", "function", "fit", "error_handler"), program),
		}
	}
	reading := &clusterpb.ThreadStack{
		Id: 1, NativeId: 100, State: "S", WaitChannel: "pipe_read",
		Frames: append(append([]*clusterpb.Frame{frame("load_batch", "/home/me/mnist.py", 33, "row = source.readline()")},
			keras("next", "fit")...), program),
	}
	held := snapshot("worker:3", &clusterpb.ThreadStack{
		Id: 1, NativeId: 100, State: "R", CpuPercent: 99.6, FramesLeftOut: 1, Frames: []*clusterpb.Frame{
			{Function: clusterpb.CollectingGarbage}, frame("<lambda>", "Cell In[7]", 3, ""),
		},
	})
	held.Source, held.Error, held.ThreadsLeftOut, held.NativeError = clusterpb.FromFaulthandler, "Python did not answer",
		1, "py-spy is not installed there"
	stopped := snapshot("ps:0", &clusterpb.ThreadStack{NativeId: 100, State: "T"})
	stopped.Source, stopped.Error = clusterpb.FromProc, "it is stopped (a SIGSTOP, or a debugger)"
	stopped.Children = []*clusterpb.ProcessState{
		{Pid: 101, Parent: 100, Command: "sleep 600", State: "S", WaitChannel: "hrtimer_nanosleep"},
		{Pid: 102, Parent: 100, Command: "sleep 600", State: "S", WaitChannel: "hrtimer_nanosleep"},
	}
	return []*clusterpb.StacksReply{
		{Run: 1, Snapshots: []*clusterpb.Snapshot{snapshot("worker:2", waiting(2), idle, &clusterpb.ThreadStack{
			NativeId: 130, Name: "tf_Compute", State: "D", WaitChannel: "nfs_wait",
		})}},
		{Run: 1, Snapshots: []*clusterpb.Snapshot{held, stopped}},
		{Run: 1, Snapshots: []*clusterpb.Snapshot{snapshot("worker:1", reading, idle)}},
		{
			Run: 1, Snapshots: []*clusterpb.Snapshot{snapshot("worker:0", waiting(0), idle)},
			Missing: []*clusterpb.MissingSnapshot{{Task: "worker:4", Host: "host1", Reason: "executor 4 is lost: killed"}},
		},
	}
}

// TestStacksJSON: the shape of stacks --json, which programs read.
func TestStacksJSON(t *testing.T) {
	t.Parallel()
	s, _ := stacksSession(t, func(f *fakeCluster) { f.stacks = stacksReplies() })
	out := newRecord()
	if _, err := runCode(t.Context(), s, "%tfcluster stacks --json", out, &fakePython{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Run   int32
		Tasks []struct {
			Task, Host, State, Source, Error string
			PID                              int32
			NativeError                      string `json:"native_error"`
			LeftOut                          int32  `json:"threads_left_out"`
			Threads                          []struct {
				Name    string
				Main    bool
				LeftOut int32 `json:"frames_left_out"`
				Frames  []struct {
					Function, File, Code string
					Line                 int32
				}
			}
		}
	}
	text := strings.ReplaceAll(out.settle(), "out| ", "")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var tasks []string
	for _, x := range got.Tasks {
		tasks = append(tasks, x.Task+" "+x.State+" "+x.Source)
	}
	if want := "worker:0 S python, worker:1 S python, worker:2 S python, worker:3 R faulthandler, worker:4  , " +
		"ps:0 T proc"; got.Run != 1 || strings.Join(tasks, ", ") != want {
		t.Errorf("run %d, tasks %s; want %s", got.Run, strings.Join(tasks, ", "), want)
	}
	if x := got.Tasks[1]; x.PID != 100 || x.Host != "host0" || !x.Threads[0].Main ||
		x.Threads[0].Frames[0].Function != "load_batch" || x.Threads[0].Frames[0].Line != 33 ||
		x.Threads[0].Frames[0].Code != "row = source.readline()" {
		t.Errorf("worker:1 %+v", x)
	}
	if x := got.Tasks[3]; x.LeftOut != 1 || x.NativeError == "" || x.Threads[0].LeftOut != 1 {
		t.Errorf("worker:3 %+v", x)
	}
	if x := got.Tasks[4]; x.PID != 0 || x.Error != "executor 4 is lost: killed" || x.Threads == nil {
		t.Errorf("worker:4 %+v", x)
	}
}

// stacksSession has a cluster with a run.
func stacksSession(t *testing.T, prep func(*fakeCluster)) (*Session, *fakeDrivers) {
	t.Helper()
	drivers := newFakeDrivers(t)
	drivers.prep = prep
	s := NewSession(t.Context(),
		session.Options{Engines: engines(), Connector: drivers, Python: "python3", WorkingDir: t.TempDir(), Client: "test"})
	t.Cleanup(s.Close)
	for _, line := range []string{"%tfcluster reserve --workers 5 --ps 1", "%tfcluster start main_fun"} {
		if _, err := runCode(t.Context(), s, line, newRecord(), &fakePython{}); err != nil {
			t.Fatal(err)
		}
	}
	return s, drivers
}

// TestStacksOfADriverThatDies: one line says what has become of the cluster.
func TestStacksOfADriverThatDies(t *testing.T) {
	t.Parallel()
	s, drivers := stacksSession(t, func(f *fakeCluster) {
		f.stacks = stacksReplies()[:1]
		f.lost = func(*fakeCluster) error { return status.Error(codes.Unavailable, "error reading from server: EOF") }
	})
	drivers.mu.Lock()
	for name := range drivers.clusters {
		drivers.dead[name] = true
	}
	drivers.mu.Unlock()
	out := newRecord()
	_, err := runCode(context.Background(), s, "%tfcluster stacks", out, &fakePython{})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "local-1") {
		t.Errorf("error %v", err)
	}
	if shown := out.settle(); strings.Contains(shown, "load_batch") {
		t.Errorf("a part is shown as if it were all: %s", shown)
	}
}

// TestStacksOfAnOlderDriver: it says what to do where the driver does not know the call.
func TestStacksOfAnOlderDriver(t *testing.T) {
	t.Parallel()
	s, _ := stacksSession(t, func(f *fakeCluster) {
		f.lost = func(*fakeCluster) error {
			return status.Error(codes.Unimplemented, "unknown method Stacks for service tfcluster.v1.Control")
		}
	})
	_, err := runCode(t.Context(), s, "%tfcluster stacks", newRecord(), &fakePython{})
	if want := "cluster local-1 was reserved by an earlier version, whose driver does not know this command; " +
		"%tfcluster shutdown -c local-1, then reserve it again"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
