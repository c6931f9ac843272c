package verbs

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

var stacksVerb = row{
	Verb: command.Verb{
		Name: "stacks", Summary: "what the tasks' threads are doing now", Words: "[TASKS]", MaxWords: -1,
		Operand: command.OperandTask, Magic: true, Shell: true, Now: true,
		Options: []command.Option{
			{Name: "all", Kind: command.KindFlag, Help: "every thread and every frame, with whole paths"},
			{
				Name: "native", Kind: command.KindFlag,
				Help: "also native frames, by py-spy on the executors, which pauses a task for seconds",
			},
			jsonOption, clusterOption, nowOption,
		}, Example: "stacks worker:0-2 chief",
		Long: "TASKS are worker:1, worker (all of them) or worker:0-2; without one, all tasks of the active run. Stacks " +
			"that are the same are shown once, with their tasks; the most recent call is first, and frames of the program " +
			"are marked with >. The program needs no change and goes on. If a thread holds Python's GIL in native code, " +
			"the stacks have no lines of source; a stopped task, and a program that is not Python, " +
			"show the states of their processes only.",
	},
	run: (*invocation).stacks,
}

// stacksWait bounds the call: the driver answers before.
const stacksWait = time.Minute

// stacks shows what the tasks of the active run are doing.
func (inv *invocation) stacks(ctx context.Context) (result.Value, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stacksWait)
	defer cancel()
	stream, err := m.Client.Stacks(ctx, &clusterpb.StacksRequest{Tasks: inv.Words, Native: inv.Has("native")})
	if err != nil {
		return nil, m.Explain(err)
	}
	all := &clusterpb.StacksReply{}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, m.Explain(err)
		}
		all.Run = reply.GetRun()
		all.Snapshots, all.Missing = append(all.GetSnapshots(), reply.GetSnapshots()...),
			append(all.GetMissing(), reply.GetMissing()...)
	}
	slices.SortFunc(all.Snapshots,
		func(a, b *clusterpb.Snapshot) int { return cluster.CompareTaskNames(a.GetTask(), b.GetTask()) })
	slices.SortFunc(all.Missing,
		func(a, b *clusterpb.MissingSnapshot) int { return cluster.CompareTaskNames(a.GetTask(), b.GetTask()) })
	data := stacksData(all)
	return inv.answer(data, data, func() render.Bundle {
		return render.StacksView(all.GetRun(), all.GetSnapshots(), all.GetMissing(), inv.Has("all"))
	})
}

// The JSON of stacks --json.
type (
	stacksJSON struct {
		Run   int32       `json:"run"`
		Tasks []taskStack `json:"tasks"`
	}
	// taskStack has a pid of 0, and why in error, if there is no snapshot of the task.
	taskStack struct {
		Task        string        `json:"task"`
		Host        string        `json:"host"`
		PID         int32         `json:"pid"`
		State       string        `json:"state"` // letter of /proc, of the main thread
		WaitChannel string        `json:"wait_channel"`
		CPUPercent  result.Float  `json:"cpu_percent"` // 100 is one core
		RSSBytes    uint64        `json:"rss_bytes"`
		Source      string        `json:"source"` // python, faulthandler or proc
		Error       string        `json:"error"`
		UnixNano    int64         `json:"unix_nano"`
		Threads     []threadStack `json:"threads"`
		LeftOut     int32         `json:"threads_left_out"` // beyond the limit of a snapshot
		Children    []childState  `json:"children"`
		Native      string        `json:"native"`
		NativeError string        `json:"native_error"` // why there is none, with --native
	}
	threadStack struct {
		Name        string       `json:"name"`
		Main        bool         `json:"main"`
		State       string       `json:"state"`
		WaitChannel string       `json:"wait_channel"`
		CPUPercent  result.Float `json:"cpu_percent"`
		Frames      []frameJSON  `json:"frames"`          // innermost first
		LeftOut     int32        `json:"frames_left_out"` // outer ones
	}
	frameJSON struct {
		Function string `json:"function"`
		File     string `json:"file"`
		Line     int32  `json:"line"`
		Code     string `json:"code"`
	}
	childState struct {
		PID         int32        `json:"pid"`
		Parent      int32        `json:"parent"`
		Command     string       `json:"command"`
		State       string       `json:"state"`
		WaitChannel string       `json:"wait_channel"`
		CPUPercent  result.Float `json:"cpu_percent"`
		RSSBytes    uint64       `json:"rss_bytes"`
	}
)

func stacksData(all *clusterpb.StacksReply) *stacksJSON {
	out := &stacksJSON{Run: all.GetRun(), Tasks: []taskStack{}}
	for _, s := range all.GetSnapshots() {
		p := s.GetProcess()
		t := taskStack{
			Task: s.GetTask(), Host: s.GetHost(), PID: s.GetPid(), State: p.GetState(), WaitChannel: p.GetWaitChannel(),
			CPUPercent: result.Float(p.GetCpuPercent()), RSSBytes: p.GetRssBytes(), Source: s.GetSource(), Error: s.GetError(),
			UnixNano: s.GetUnixNano(), Threads: []threadStack{}, Children: []childState{}, Native: s.GetNative(),
			NativeError: s.GetNativeError(), LeftOut: s.GetThreadsLeftOut(),
		}
		for _, x := range s.GetThreads() {
			t.Threads = append(t.Threads, threadData(x))
		}
		for _, c := range s.GetChildren() {
			t.Children = append(t.Children, childState{
				c.GetPid(), c.GetParent(), c.GetCommand(), c.GetState(), c.GetWaitChannel(), result.Float(c.GetCpuPercent()),
				c.GetRssBytes(),
			})
		}
		out.Tasks = append(out.Tasks, t)
	}
	for _, m := range all.GetMissing() {
		out.Tasks = append(out.Tasks, taskStack{
			Task: m.GetTask(), Host: m.GetHost(), Error: m.GetReason(), Threads: []threadStack{}, Children: []childState{},
		})
	}
	slices.SortStableFunc(out.Tasks, func(a, b taskStack) int { return cluster.CompareTaskNames(a.Task, b.Task) })
	return out
}

func threadData(t *clusterpb.ThreadStack) threadStack {
	s := threadStack{
		t.GetName(), t.GetMain(), t.GetState(), t.GetWaitChannel(), result.Float(t.GetCpuPercent()),
		[]frameJSON{},
		t.GetFramesLeftOut(),
	}
	for _, f := range t.GetFrames() {
		s.Frames = append(s.Frames, frameJSON{f.GetFunction(), f.GetFile(), f.GetLine(), f.GetCode()})
	}
	return s
}
