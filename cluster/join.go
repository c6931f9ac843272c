package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// agentConn is an agent's Join stream as the loop sees it: instructions go in
// order and never wait for the network.
type agentConn struct {
	exec   ExecutorID
	mu     sync.Mutex
	queue  []*clusterpb.Instruction
	wake   chan struct{} // cap 1
	closed chan struct{} // closed by close
	once   sync.Once
	why    string // set before closed is
}

func newAgentConn(exec ExecutorID) *agentConn {
	return &agentConn{exec: exec, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (a *agentConn) send(in *clusterpb.Instruction) {
	a.mu.Lock()
	a.queue = append(a.queue, in)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *agentConn) take() []*clusterpb.Instruction {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queue
	a.queue = nil
	return q
}

func (a *agentConn) close(why string) { a.once.Do(func() { a.why = why; close(a.closed) }) }

// Join implements the Coordinator service.
func (c *Coordinator) Join(stream grpc.BidiStreamingServer[clusterpb.AgentMessage, clusterpb.Instruction]) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "an agent says hello first")
	}
	if name := peerName(ctx); name != hello.GetExecutorId() {
		return status.Errorf(codes.PermissionDenied, "the certificate is executor %s's, the hello executor %s's", name, hello.GetExecutorId())
	}
	conn := newAgentConn(ExecutorID(hello.GetExecutorId()))
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Welcome{Welcome: c.welcome(hello)}})
	if err := c.call(ctx, func() { c.join(conn, hello) }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	received := make(chan error, 1)
	go func() { // ends with the stream, which ends when this handler returns
		for {
			m, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			c.post(func() { c.agentMessage(conn, m) })
		}
	}()
	defer c.post(func() { c.left(conn, hello.GetIncarnation()) })
	for {
		for _, in := range conn.take() {
			if err := stream.Send(in); err != nil {
				return err
			}
		}
		select {
		case <-conn.wake:
		case <-received:
			return nil
		case <-conn.closed:
			for _, in := range conn.take() {
				if err := stream.Send(in); err != nil {
					return err
				}
			}
			return status.Error(codes.Aborted, conn.why)
		case <-c.done:
			for _, in := range conn.take() {
				if err := stream.Send(in); err != nil {
					return err
				}
			}
			return nil
		}
	}
}

// peerName is the name in the certificate that the peer proved to hold.
func peerName(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	return info.State.PeerCertificates[0].Subject.CommonName
}

func (c *Coordinator) welcome(hello *clusterpb.Hello) *clusterpb.Welcome {
	r := c.cfg.Request
	w := &clusterpb.Welcome{
		Cluster: c.cfg.Name, HeartbeatMillis: c.cfg.Heartbeat.Milliseconds(), HeartbeatTimeoutMillis: c.cfg.Silence.Milliseconds(),
		OrphanGraceMillis: c.cfg.OrphanGrace.Milliseconds(), IdleMillis: r.GetIdleMillis(),
		WarmUp: &clusterpb.WarmUp{Python: r.GetPython(), Zygote: r.GetZygote(), Env: r.GetEnv()},
	}
	if hello.GetVersion() != c.cfg.Version {
		w.Refused = fmt.Sprintf("its tfcluster is version %s, the driver's %s", hello.GetVersion(), c.cfg.Version)
	}
	return w
}

func (c *Coordinator) join(conn *agentConn, hello *clusterpb.Hello) {
	if hello.GetVersion() != c.cfg.Version {
		c.handle(evLost{conn.exec, int(hello.GetAttempt()), fmt.Sprintf("the agent on %s has tfcluster %s, the driver %s", hello.GetHost(), hello.GetVersion(), c.cfg.Version)})
		return
	}
	if old := c.agents[conn.exec]; old != nil {
		old.close("another stream of this executor joined")
	}
	c.agents[conn.exec] = conn
	c.hellos[conn.exec] = hello
	c.log.Info("joined", "executor", conn.exec, "host", hello.GetHost(), "pid", hello.GetPid(), "attempt", hello.GetAttempt())
	c.handle(evJoined{
		exec: conn.exec, attempt: int(hello.GetAttempt()), incarnation: hello.GetIncarnation(), host: hello.GetHost(), address: hello.GetAddress(),
		warm: hello.GetWarmed(), tasks: hello.GetTasks(),
	})
}

func (c *Coordinator) left(conn *agentConn, incarnation string) {
	if c.agents[conn.exec] != conn {
		return
	}
	delete(c.agents, conn.exec)
	c.handle(evDisconnected{conn.exec, incarnation})
}

// agentMessage takes one message of an agent. Loop only.
func (c *Coordinator) agentMessage(conn *agentConn, m *clusterpb.AgentMessage) {
	if c.agents[conn.exec] != conn {
		return // a stream that was replaced
	}
	switch m := m.GetMessage().(type) {
	case *clusterpb.AgentMessage_Warmed:
		c.hellos[conn.exec].Python = m.Warmed.GetPython()
		c.checkPython(conn.exec, m.Warmed.GetPython())
		c.handle(evWarmed{conn.exec})
	case *clusterpb.AgentMessage_Prepared:
		p := m.Prepared
		e := evPrepared{exec: conn.exec, run: p.GetRun(), attempt: int(p.GetAttempt()), err: p.GetError()}
		if len(p.GetPorts()) > 0 {
			e.port = p.GetPorts()[0]
		} else if e.err == "" {
			e.err = "the agent named none"
		}
		c.handle(e)
	case *clusterpb.AgentMessage_Heartbeat:
		c.heartbeat(conn.exec, m.Heartbeat)
	case *clusterpb.AgentMessage_Task:
		c.taskEvent(m.Task)
	case *clusterpb.AgentMessage_Barrier:
		c.barrier(m.Barrier)
	case *clusterpb.AgentMessage_Note:
		c.note(m.Note.GetText(), m.Note.GetWarning())
		c.wake()
	}
}

// checkPython says what matters about an executor's Python, once for the cluster.
func (c *Coordinator) checkPython(id ExecutorID, p *clusterpb.Python) {
	x := c.lc.exec(id)
	if p.GetError() != "" {
		c.noteOnce(fmt.Sprintf("Python on %s: %s", x.host, p.GetError()))
	}
	for other, h := range c.hellos {
		q := h.GetPython()
		if other == id || q == nil {
			continue
		}
		for _, d := range []struct{ what, a, b string }{
			{"Python", p.GetVersion(), q.GetVersion()},
			{"TensorFlow", p.GetTensorflow(), q.GetTensorflow()},
			{"Keras", p.GetKeras(), q.GetKeras()},
		} {
			if d.a != d.b {
				c.noteOnce(fmt.Sprintf("%s differs: %q on %s, %q on %s; one environment everywhere avoids errors that are hard to read", d.what, d.a, x.host, d.b, h.GetHost()))
			}
		}
	}
}

func (c *Coordinator) noteOnce(text string) {
	for _, n := range c.notes {
		if n.GetText() == text {
			return
		}
	}
	c.note(text, true)
}

func (c *Coordinator) heartbeat(id ExecutorID, h *clusterpb.Heartbeat) {
	if c.lc.run == nil {
		return
	}
	rec := c.find(c.lc.run.spec.id)
	stopped := map[TaskID]bool{}
	for _, u := range h.GetUsage() {
		t, err := ParseTask(u.GetTask())
		if err != nil {
			continue
		}
		rec.usage(t, u)
		stopped[t] = u.GetState() == "T"
	}
	c.handle(evUsage{id, stopped})
}

func (c *Coordinator) taskEvent(e *clusterpb.TaskEvent) {
	id, err := ParseTask(e.GetTask())
	rec := c.find(e.GetRun())
	if err != nil || rec == nil || rec.loaded || e.GetRun() == 0 {
		return
	}
	switch ev := e.GetEvent().(type) {
	case *clusterpb.TaskEvent_Started:
		rec.task(id).status.Pid = ev.Started.GetPid()
		c.wake()
	case *clusterpb.TaskEvent_Entered:
		c.handle(evEntered{e.GetRun(), id})
	case *clusterpb.TaskEvent_ServerJoined:
		c.handle(evServerJoin{e.GetRun(), id})
	case *clusterpb.TaskEvent_Report:
		if rec.report(id, ev.Report) {
			c.handle(evStep{})
		}
		c.wake()
	case *clusterpb.TaskEvent_Exited:
		c.log.Info("task exited", "run", e.GetRun(), "task", id, "code", ev.Exited.GetCode(), "signal", ev.Exited.GetSignal(), "reason", ev.Exited.GetReason())
		c.handle(evExited{run: e.GetRun(), attempt: int(e.GetAttempt()), task: id, exit: ev.Exited})
	case *clusterpb.TaskEvent_Result:
		if rec.lead == "" || rec.lead == id.String() || rec.status.GetResult() == nil || leads(id) {
			rec.status.Result = ev.Result
		}
	case *clusterpb.TaskEvent_Note:
		c.note(id.String()+": "+ev.Note.GetText(), ev.Note.GetWarning())
		c.wake()
	}
}

// leads is whether a task's result is the run's: the chief's, or worker 0's.
func leads(id TaskID) bool { return id.Role == Chief || id == TaskID{Role: Worker} }

// barrier releases the tasks that wait at a name once every one of chief, workers
// and parameter servers has come that has not ended.
func (c *Coordinator) barrier(b *clusterpb.BarrierArrived) {
	r := c.lc.run
	if r == nil || r.spec.id != b.GetRun() || r.attempt != int(b.GetAttempt())%loneRestart {
		return
	}
	key := fmt.Sprintf("%d.%d/%s", b.GetRun(), r.attempt, b.GetName())
	if c.barriers[key] == nil {
		c.barriers[key] = map[string]bool{}
	}
	c.barriers[key][b.GetTask()] = true
	for _, t := range r.tasks {
		trains := t.id.Role == Chief || t.id.Role == Worker
		if trains && !c.barriers[key][t.id.String()] {
			if t.state == taskExited || t.state == taskEnded {
				c.releaseBarrier(b, fmt.Sprintf("%s has ended and will not come", t.id))
				delete(c.barriers, key)
				return
			}
			return
		}
	}
	c.releaseBarrier(b, "")
	delete(c.barriers, key)
}

func (c *Coordinator) releaseBarrier(b *clusterpb.BarrierArrived, problem string) {
	for _, conn := range c.agents {
		conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{
			Barrier: &clusterpb.BarrierReleased{Run: b.GetRun(), Name: b.GetName(), Error: problem},
		}})
	}
}

// Logs implements the Coordinator service.
func (c *Coordinator) Logs(stream grpc.BidiStreamingServer[clusterpb.LogBatch, clusterpb.LogAck]) error {
	for {
		b, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := ParseTask(b.GetTask()); err != nil || b.GetRun() < 1 {
			return status.Error(codes.InvalidArgument, "a batch without a task or run")
		}
		fresh, next, err := c.store.Append(b)
		if err != nil {
			c.post(func() { c.noteOnce("lines could not be kept: " + err.Error()) })
		}
		c.fanOut(b.GetRun(), fresh)
		if err := stream.Send(&clusterpb.LogAck{Run: b.GetRun(), Task: b.GetTask(), Attempt: b.GetAttempt(), Next: next}); err != nil {
			return err
		}
	}
}

// Fetch implements the Coordinator service.
func (c *Coordinator) Fetch(req *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	var data []byte
	var ok bool
	if err := c.call(stream.Context(), func() { data, ok = c.blobs[req.GetSha256()] }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !ok {
		return status.Errorf(codes.NotFound, "no blob %s: the run it belonged to is over", req.GetSha256())
	}
	const chunk = 1 << 20
	for {
		n := min(chunk, len(data))
		if err := stream.Send(&clusterpb.Chunk{Data: data[:n]}); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// Sync implements the Coordinator service: bytes land at their offset in a file
// below the cluster's directory.
func (c *Coordinator) Sync(stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply]) error {
	var files int64
	var open *os.File
	var name string
	defer func() {
		if open != nil {
			_ = open.Close() // the last write was checked
		}
	}()
	for {
		ch, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&clusterpb.SyncReply{Files: files})
		}
		if err != nil {
			return err
		}
		if ch.GetPath() != name || open == nil {
			clean := filepath.Clean(ch.GetPath())
			if !filepath.IsLocal(clean) || !strings.HasPrefix(clean, "run-") || ch.GetOffset() < 0 {
				return status.Errorf(codes.InvalidArgument, "%q is not a file of a run", ch.GetPath())
			}
			if open != nil {
				if err := open.Close(); err != nil {
					return status.Errorf(codes.Internal, "write %s: %v", name, err)
				}
			}
			full := filepath.Join(c.cfg.Dir, clean)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				return status.Errorf(codes.Internal, "write %s: %v", clean, err)
			}
			open, err = os.OpenFile(full, os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return status.Errorf(codes.Internal, "write %s: %v", clean, err)
			}
			name = ch.GetPath()
			files++
		}
		if _, err := open.WriteAt(ch.GetData(), ch.GetOffset()); err != nil {
			return status.Errorf(codes.Internal, "write %s: %v", name, err)
		}
	}
}

// agentConfig makes what an agent reads on its standard input.
func (c *Coordinator) agentConfig(execs []ExecutorRequest) func(ExecutorID, int) ([]byte, error) {
	tasks := map[ExecutorID]ExecutorRequest{}
	for _, e := range execs {
		tasks[e.ID] = e
	}
	return func(id ExecutorID, attempt int) ([]byte, error) {
		certPEM, keyPEM, err := c.cfg.Authority.Issue(string(id))
		if err != nil {
			return nil, err
		}
		e := tasks[id]
		return json.Marshal(map[string]any{
			"executor_id": id, "attempt": attempt, "cluster": c.cfg.Name, "coordinator": c.cfg.Address, "server_name": coordinatorName,
			"ca_pem": string(c.cfg.Authority.CertPEM), "cert_pem": string(certPEM), "key_pem": string(keyPEM),
			"role": e.Task.Role, "number": e.Task.Index, "gpus": e.Each.GetGpus(),
			"orphan_grace_millis": c.cfg.OrphanGrace.Milliseconds(), "idle_millis": c.cfg.Request.GetIdleMillis(),
		})
	}
}

// keepBlob takes a blob's data in and gives it its name.
func (c *Coordinator) keepBlob(b *clusterpb.Blob) {
	if b == nil || (len(b.GetData()) == 0 && b.GetSha256() != "") {
		return
	}
	sum := sha256.Sum256(b.GetData())
	b.Sha256, b.Size = hex.EncodeToString(sum[:]), int64(len(b.GetData()))
	c.blobs[b.Sha256] = b.Data
}

// A run's end waits for the last lines of its tasks: until each stream has said that
// it ended, for settleMost at the longest, and no longer than settleTime after lines
// have ceased to come.
const (
	settleTime = 500 * time.Millisecond
	settleMost = 20 * time.Second
)
