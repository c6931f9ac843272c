package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Join implements the Coordinator service.
func (c *Coordinator) Join(stream grpc.BidiStreamingServer[clusterpb.AgentMessage, clusterpb.Instruction]) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "an agent's first message must be a hello")
	}
	if name := auth.PeerName(ctx); name != hello.GetExecutorId() {
		return status.Error(codes.PermissionDenied,
			errtext.Fault("executor %s has the certificate of executor %s", hello.GetExecutorId(), name).Error())
	}
	conn := newAgentConn(cluster.ExecutorID(hello.GetExecutorId()))
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Welcome{Welcome: c.welcome(hello)}})
	if err := c.call(ctx, func() { c.join(conn, hello) }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	received := make(chan error, 1)
	go func() { // ends with the stream, when this handler returns
		for {
			m, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			c.post(func() { c.agentMessage(conn, m) })
		}
	}()
	defer c.post(func() { c.agentLeft(conn, hello.GetIncarnation()) })
	flush := func() error {
		for _, in := range conn.take() {
			if err := stream.Send(in); err != nil {
				return err
			}
		}
		return nil
	}
	for {
		if err := flush(); err != nil {
			return err
		}
		select {
		case <-conn.wake:
		case err := <-received:
			c.log.Debug("an agent's stream ended", "executor", conn.exec, "err", err)
			return nil
		case <-conn.closed:
			return cmp.Or(flush(), status.Error(codes.Aborted, conn.why))
		case <-c.done:
			return flush()
		}
	}
}

// welcome returns the answer to an agent's Hello.
func (c *Coordinator) welcome(hello *clusterpb.Hello) *clusterpb.Welcome {
	r := c.cfg.Request
	w := &clusterpb.Welcome{
		Cluster: c.cfg.Name, HeartbeatMillis: c.cfg.Timing.Heartbeat.Milliseconds(),
		OrphanGraceMillis: c.cfg.OrphanGrace.Milliseconds(), IdleMillis: r.GetIdleMillis(),
		WarmUp: c.warmUp(), FeedMemoryBytes: r.GetFeedMemoryBytes(),
	}
	if w.Refused = hello.Refuses(c.cfg.Version); w.Refused != "" {
		return w
	}
	if hello.GetGpuError() != "" { // its programs would silently run on the CPU
		w.Refused = "it has no GPU: " + hello.GetGpuError()
	}
	return w
}

// warmUp returns the Python that agents keep warm.
func (c *Coordinator) warmUp() *clusterpb.WarmUp {
	r := c.cfg.Request
	return &clusterpb.WarmUp{
		Python: r.GetPython(), Zygote: r.GetZygote() && forTensorFlow(r), Plain: plain(r), Env: r.GetEnv(),
		Generation: c.execs.generation.Load(), Environment: c.files.shipped.Packed(),
	}
}

func forTensorFlow(r *clusterpb.ReserveRequest) bool {
	return r.GetFramework() == "" || r.GetFramework() == cluster.TensorFlow
}

// plain returns whether executors need no Python unless a program is Python. A shipped
// environment requires one.
func plain(r *clusterpb.ReserveRequest) bool {
	return r.GetFramework() == cluster.Plain && r.GetVenv() == "" && r.GetShipEnvironment() == ""
}

// relevantPython removes the lack of TensorFlow from an executor's Python if the programs do
// not use it.
func (c *Coordinator) relevantPython(p *clusterpb.Python) *clusterpb.Python {
	if p.GetVersion() == "" || forTensorFlow(c.cfg.Request) {
		return p
	}
	return &clusterpb.Python{
		Executable: p.GetExecutable(), Version: p.GetVersion(), Cloudpickle: p.GetCloudpickle(), Zygote: p.GetZygote(),
		Nccl: p.GetNccl(),
	}
}

func (c *Coordinator) join(conn *agentConn, hello *clusterpb.Hello) {
	if why := hello.Refuses(c.cfg.Version); why != "" {
		c.handle(lifecycle.AgentLost{
			Exec: conn.exec, Attempt: int(hello.GetAttempt()), By: cluster.LostByError, Cause: "its agent is refused: " + why +
				"; if tfcluster was updated after the reservation, shutdown and reserve again",
		})
		return
	}
	if hello.GetGpuError() != "" {
		why := "it got no GPU: " + hello.GetGpuError()
		c.reportJoined(hello, why)
		c.handle(lifecycle.AgentLost{Exec: conn.exec, Attempt: int(hello.GetAttempt()), By: cluster.LostByError, Cause: why})
		return
	}
	if !c.lc.Expects(conn.exec, int(hello.GetAttempt())) {
		// The executor's current agent, if any, keeps its stream.
		conn.send(lifecycle.ReleaseInstruction("this cluster does not expect it any more"))
		if chooser, ok := c.reserved.alloc.(cluster.HostAvoider); ok {
			c.work.Go(func() { chooser.HostAnswers(hello.GetHost()) }) // it may send an event, which this loop reads
		}
		return
	}
	if old := c.execs.agents[conn.exec]; old != nil {
		old.close("another stream of this executor joined")
		c.snapshotMissing(conn.exec)
	}
	c.execs.agents[conn.exec] = conn
	hello.Python = c.relevantPython(hello.GetPython())
	c.execs.hellos[conn.exec] = hello
	c.execs.expectUnsent(conn.exec, hello)
	c.reportJoined(hello, "")
	c.log.Info("joined", "executor", conn.exec, "host", hello.GetHost(), "pid", hello.GetPid(),
		"attempt", hello.GetAttempt())
	c.handle(lifecycle.AgentJoined{
		Exec: conn.exec, Attempt: int(hello.GetAttempt()), Incarnation: hello.GetIncarnation(), Host: hello.GetHost(),
		Address: hello.GetAddress(), Warm: hello.GetWarmed(), Tasks: hello.GetTasks(),
	})
	if p := hello.GetPython(); hello.GetWarmed() && p.GetError() != "" { // its warm-up before the join has failed
		c.checkPython(conn.exec, p)
	}
}

// reportJoined tells the engine that an agent has joined, and why it cannot be used, if so.
func (c *Coordinator) reportJoined(hello *clusterpb.Hello, unfit string) {
	if chooser, ok := c.reserved.alloc.(cluster.NodeExcluder); ok {
		chooser.AgentJoined(cluster.ExecutorID(hello.GetExecutorId()), int(hello.GetAttempt()), unfit)
	}
}

func (c *Coordinator) agentLeft(conn *agentConn, incarnation string) {
	if c.execs.agents[conn.exec] != conn {
		return
	}
	delete(c.execs.agents, conn.exec)
	delete(c.execs.gpus, conn.exec)
	c.execs.left[conn.exec] = conn.heard
	// Before a network failure breaks the connection the agent is silent; if the process ends
	// it is not. Messages that waited while the driver itself was stopped also count as after a
	// silence.
	sudden := conn.spoke(time.Now(), c.execs.usual, suddenPause)
	c.handle(lifecycle.AgentDisconnected{Exec: conn.exec, Incarnation: incarnation, Sudden: sudden})
	c.snapshotMissing(conn.exec)
}

// agentMessage handles one message of an agent. Loop only.
func (c *Coordinator) agentMessage(conn *agentConn, m *clusterpb.AgentMessage) {
	if c.execs.agents[conn.exec] != conn {
		return // the stream was replaced
	}
	conn.hear(time.Now(), c.execs.usual)
	switch m := m.GetMessage().(type) {
	case *clusterpb.AgentMessage_Warmed:
		python := c.relevantPython(m.Warmed.GetPython())
		c.execs.hellos[conn.exec].Python = python
		if c.lacksEnvironment(python) {
			return
		}
		c.checkPython(conn.exec, python)
		c.handle(lifecycle.AgentWarm{Exec: conn.exec})
	case *clusterpb.AgentMessage_Fetching:
		c.handle(lifecycle.AgentFetching{Exec: conn.exec, What: m.Fetching.GetWhat()})
	case *clusterpb.AgentMessage_Leaving:
		c.log.Info("leaving", "executor", conn.exec, "cause", m.Leaving.GetCause())
		c.handle(lifecycle.AgentLost{
			Exec: conn.exec, Attempt: int(c.execs.hellos[conn.exec].GetAttempt()), Cause: m.Leaving.GetCause(),
		})
	case *clusterpb.AgentMessage_Prepared:
		p := m.Prepared
		e := lifecycle.PortPrepared{Exec: conn.exec, Run: p.GetRun(), Attempt: int(p.GetAttempt()), Err: p.GetError()}
		if len(p.GetPorts()) > 0 {
			e.Port = p.GetPorts()[0]
		} else if e.Err == "" {
			e.Err = "the agent named none"
		}
		c.handle(e)
	case *clusterpb.AgentMessage_Heartbeat:
		c.heartbeat(conn.exec, m.Heartbeat)
	case *clusterpb.AgentMessage_Task:
		if err := c.execs.checkTask(conn.exec, m.Task.GetTask()); err != nil {
			c.log.Warn("a task's event is ignored; the run goes on", "err", err)
			return
		}
		c.taskEvent(m.Task)
	case *clusterpb.AgentMessage_Barrier:
		if err := c.execs.checkTask(conn.exec, m.Barrier.GetTask()); err != nil {
			c.log.Warn("an arrival at a barrier is ignored; the run goes on", "err", err)
			return
		}
		c.arrive(m.Barrier)
	case *clusterpb.AgentMessage_Snapshot:
		c.snapshotTaken(conn.exec, m.Snapshot)
	case *clusterpb.AgentMessage_FilesSent:
		c.filesSent(conn.exec, m.FilesSent)
	case *clusterpb.AgentMessage_Note:
		c.note(m.Note.GetText(), m.Note.GetWarning())
		c.subs.wake()
	}
}

// checkPython says why tasks cannot be started on an executor, once for the cluster.
func (c *Coordinator) checkPython(id cluster.ExecutorID, p *clusterpb.Python) {
	x := c.lc.Executor(id)
	if p.GetError() != "" {
		c.noteOnce(fmt.Sprintf("tasks cannot be started on %s: %s; %%tfcluster start tries again", x.Host,
			errtext.WithRemedy(p.GetError())))
	}
}

// warnOfFewCores warns if a host has fewer cores than tasks that compute.
func (c *Coordinator) warnOfFewCores() {
	var hosts []string
	tasks, cores := map[string]int{}, map[string]int32{}
	for _, x := range c.lc.Executors() {
		hello := c.execs.hellos[x.ID]
		if hello.GetCpus() == 0 || x.Task.Role == cluster.PS || x.Task.Role == cluster.Evaluator {
			continue
		}
		if tasks[x.Host] == 0 {
			hosts = append(hosts, x.Host)
		}
		tasks[x.Host]++
		cores[x.Host] = hello.GetCpus()
	}
	hosts = slices.DeleteFunc(hosts, func(h string) bool { return tasks[h] <= int(cores[h]) })
	if len(hosts) == 0 {
		return
	}
	text := fmt.Sprintf("%d tasks run on %s, which has fewer cores (%d)", tasks[hosts[0]], hosts[0], cores[hosts[0]])
	if n := len(hosts) - 1; n > 0 {
		text += fmt.Sprintf("; it is the same on other hosts (%d)", n)
	}
	c.noteOnce(text + ": they take turns, so steps take longer")
}

func (c *Coordinator) noteOnce(text string) {
	if !c.notes.has(text) {
		c.note(text, true)
	}
}

func (c *Coordinator) taskEvent(e *clusterpb.TaskEvent) {
	id, err := cluster.ParseTask(e.GetTask())
	rec := c.runs.find(e.GetRun())
	if err != nil || rec == nil || rec.loaded || e.GetRun() == 0 {
		return
	}
	switch ev := e.GetEvent().(type) {
	case *clusterpb.TaskEvent_Started:
		rec.task(id).status.Pid = ev.Started.GetPid()
		c.subs.wake()
	case *clusterpb.TaskEvent_Entered:
		c.handle(lifecycle.ProgramEntered{Run: e.GetRun(), Task: id})
	case *clusterpb.TaskEvent_ServerJoined:
		c.handle(lifecycle.ServerJoined{Run: e.GetRun(), Task: id})
	case *clusterpb.TaskEvent_Report:
		if rec.report(id, ev.Report) {
			c.handle(lifecycle.StepMoved{})
		}
		c.subs.progressed()
	case *clusterpb.TaskEvent_Activity:
		if t := c.lc.OpenTask(e.GetRun(), id); t != nil && int(e.GetAttempt()) == t.Attempt {
			c.active(rec, id, ev.Activity)
		}
	case *clusterpb.TaskEvent_Exited:
		c.log.Info("task exited", "run", e.GetRun(), "task", id, "code", ev.Exited.GetCode(), "signal", ev.Exited.GetSignal(),
			"reason", ev.Exited.GetReason())
		rec.exited(id, e.GetAttempt(), ev.Exited)
		c.inactive(rec, id, e.GetAttempt())
		c.handle(lifecycle.ProgramExited{Run: e.GetRun(), Attempt: int(e.GetAttempt()), Task: id, Exit: ev.Exited})
	case *clusterpb.TaskEvent_Result:
		if t := c.lc.OpenTask(e.GetRun(), id); t != nil && int(e.GetAttempt()) == t.Attempt {
			rec.values.put(id, ev.Result, id == resultTask(c.cfg.Request.GetRoles()))
		}
	case *clusterpb.TaskEvent_Nccl:
		rec.task(id).status.Nccl = ev.Nccl
		c.subs.wake()
	case *clusterpb.TaskEvent_Step:
		c.handle(lifecycle.StepAnswered{Run: e.GetRun(), Attempt: int(e.GetAttempt()), Task: id, Step: ev.Step})
	case *clusterpb.TaskEvent_Stopping:
		c.handle(lifecycle.StopReached{Run: e.GetRun(), Attempt: int(e.GetAttempt()), Task: id})
	case *clusterpb.TaskEvent_Manifest:
		c.manifested(rec, e)
	case *clusterpb.TaskEvent_Note:
		c.note(id.String()+": "+ev.Note.GetText(), ev.Note.GetWarning())
		c.subs.wake()
	}
}

// Logs implements the Coordinator service. An executor writes lines of its own task only.
func (c *Coordinator) Logs(stream grpc.BidiStreamingServer[clusterpb.LogBatch, clusterpb.LogAck]) error {
	id := cluster.ExecutorID(auth.PeerName(stream.Context()))
	for {
		b, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := cluster.ParseTask(b.GetTask()); err != nil || b.GetRun() < 1 {
			return status.Error(codes.InvalidArgument, "a batch without a task or run")
		}
		if err := c.execs.checkTask(id, b.GetTask()); err != nil {
			return status.Error(codes.PermissionDenied, err.Error())
		}
		next := c.store.Append(b)
		if err := stream.Send(&clusterpb.LogAck{
			Run: b.GetRun(), Task: b.GetTask(), Attempt: b.GetAttempt(), Next: next,
		}); err != nil {
			return err
		}
	}
}

// agentConfig returns a function that makes an agent's configuration.
func (c *Coordinator) agentConfig(execs []cluster.ExecutorRequest) func(cluster.ExecutorID,
	int,
) (*clusterpb.AgentConfig, error) {
	tasks := map[cluster.ExecutorID]cluster.ExecutorRequest{}
	for _, e := range execs {
		tasks[e.ID] = e
	}
	return func(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
		certPEM, keyPEM, err := c.cfg.Authority.Issue(string(id))
		if err != nil {
			return nil, err
		}
		e := tasks[id]
		config := &clusterpb.AgentConfig{
			Identity: &clusterpb.AgentIdentity{
				ExecutorId: string(id), Attempt: int32(attempt), Cluster: c.cfg.Name, Number: int32(e.Task.Index),
				CaPem: string(c.cfg.Authority.CertPEM), CertPem: string(certPEM), KeyPem: string(keyPEM),
			},
			Driver: &clusterpb.DriverAddress{Coordinator: c.Address(), ServerName: auth.CoordinatorName},
			Gpus:   &clusterpb.GPUShare{Count: e.Each.GetGpus()},
			Hadoop: c.cfg.Hadoop,
			Timeouts: &clusterpb.AgentTimeouts{
				OrphanGraceMillis: c.cfg.OrphanGrace.Milliseconds(), IdleMillis: c.cfg.Request.GetIdleMillis(),
			},
		}
		if w := c.warmUp(); w.GetPlain() { // it can begin while the agent joins, without data from the driver
			config.WarmUp = w
		}
		return config, nil
	}
}
