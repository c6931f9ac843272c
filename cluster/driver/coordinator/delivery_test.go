package coordinator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
)

// batches is an agent's stream of logs: what a test sends comes in, acknowledgements are
// dropped.
type batches struct {
	grpc.ServerStream
	executor string
	in       chan *clusterpb.LogBatch
}

// Context has the executor's certificate.
func (b *batches) Context() context.Context {
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: b.executor}}
	return peer.NewContext(context.Background(), &peer.Peer{
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}},
	})
}

func (b *batches) Recv() (*clusterpb.LogBatch, error) {
	m, ok := <-b.in
	if !ok {
		return nil, io.EOF
	}
	return m, nil
}
func (b *batches) Send(*clusterpb.LogAck) error { return nil }

// TestLinesOfAnotherTask: an executor reports about its own task only.
func TestLinesOfAnotherTask(t *testing.T) {
	t.Parallel()
	r := startRunning(t, 0)
	forged := &batches{executor: "0", in: make(chan *clusterpb.LogBatch, 1)}
	forged.in <- &clusterpb.LogBatch{Run: 1, Attempt: 1, Task: "worker:1", Lines: []*clusterpb.Line{{Text: "forged"}}}
	close(forged.in)
	if err := r.Logs(forged); status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), "executor 0 reported about task worker:1, but it runs worker:0") {
		t.Errorf("lines of another executor's task: %v", err)
	}
	conn := newAgentConn("0")
	r.do(func() {
		r.execs.agents["0"] = conn
		r.agentMessage(conn, &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: &clusterpb.TaskEvent{
			Run: 1, Attempt: 1, Task: "worker:1", Event: &clusterpb.TaskEvent_Exited{Exited: &clusterpb.Exited{Code: 3}},
		}}})
		if task := r.lc.OpenTask(1, cluster.TaskID{Role: cluster.Worker, Index: 1}); task == nil {
			t.Error("executor 0 ended worker:1")
		}
	})
	r.exited(0, 1, &clusterpb.Exited{})
	r.exited(1, 1, &clusterpb.Exited{})
	r.wrote(0, 1, 0, true)
	r.wrote(1, 1, 0, true, "its own")
	if st, text := r.wait(); st.GetState() != "finished" || strings.Contains(text, "forged") {
		t.Errorf("the run is %s:\n%s", st.GetState(), text)
	}
}

// running is a run of two workers that have entered, their agents' streams of logs, and a
// client that follows the run.
type running struct {
	*coordinated
	logs [2]chan *clusterpb.LogBatch

	mu    sync.Mutex
	shown []string                  // guarded by mu: lines and notes, in their order
	over  chan *clusterpb.RunStatus // the last status
}

func startRunning(t *testing.T, maxRestarts int) *running {
	t.Helper()
	r := &running{coordinated: coordinate(t, true), over: make(chan *clusterpb.RunStatus, 1)}
	r.do(func() {
		r.runs.program = &clusterpb.StartRequest{}
		r.runs.records = append(r.runs.records, newRecord(&clusterpb.RunStatus{Id: 1, Dir: t.TempDir()}))
		r.handle(lifecycle.StartRequested{
			Spec: lifecycle.RunSpec{ID: 1, Options: &clusterpb.RunOptions{MaxRestarts: int32(maxRestarts)}},
		})
	})
	r.enter(1)
	served := make(chan error, 3)
	for i := range r.logs {
		r.logs[i] = make(chan *clusterpb.LogBatch)
		go func() { served <- r.Logs(&batches{executor: fmt.Sprint(i), in: r.logs[i]}) }()
	}
	stream := &sent[clusterpb.RunUpdate]{ctx: within(t), every: r.update}
	go func() {
		served <- r.Control().(*control).Follow(&clusterpb.FollowRequest{Run: 1, FromStart: true}, stream)
	}()
	t.Cleanup(func() {
		for _, logs := range r.logs {
			close(logs)
		}
		for range 3 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *running) update(u *clusterpb.RunUpdate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range append(u.GetLines().GetHead(), u.GetLines().GetTail()...) {
		r.shown = append(r.shown, "["+l.GetTask()+"] "+l.GetText())
	}
	for _, n := range u.GetNotes() {
		r.shown = append(r.shown, n.GetText())
	}
	if u.GetFinal() {
		r.over <- u.GetStatus()
	}
}

// enter lets both workers of an attempt come into their program.
func (r *running) enter(attempt int) {
	r.do(func() {
		for _, id := range []cluster.ExecutorID{"0", "1"} {
			r.handle(lifecycle.PortPrepared{Exec: id, Run: 1, Attempt: attempt, Port: 7000})
		}
		for i := range 2 {
			r.handle(lifecycle.ProgramEntered{Run: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}})
		}
	})
}

// exited is a task's report of its end.
func (r *running) exited(task, attempt int, x *clusterpb.Exited) {
	e := &clusterpb.TaskEvent{
		Run: 1, Attempt: int32(attempt), Task: cluster.TaskID{Role: cluster.Worker, Index: task}.String(),
		Event: &clusterpb.TaskEvent_Exited{Exited: x},
	}
	r.do(func() { r.taskEvent(e) })
}

// wrote sends a task's lines from number first on; an end of its own has no line.
func (r *running) wrote(task, attempt, first int, end bool, texts ...string) {
	b := &clusterpb.LogBatch{
		Run: 1, Attempt: int32(attempt), Task: cluster.TaskID{Role: cluster.Worker, Index: task}.String(),
		First: uint64(first), EndOfStream: end,
	}
	for _, text := range texts {
		b.Lines = append(b.Lines, &clusterpb.Line{UnixNano: time.Now().UnixNano(), Text: text})
	}
	r.logs[task] <- b
}

// delay is how long lines stay behind the word of their task's end: longer than a driver
// once waited for one that does not come.
const delay = 800 * time.Millisecond

// wait returns the run's last status and all that its client has seen.
func (r *running) wait() (*clusterpb.RunStatus, string) {
	r.t.Helper()
	select {
	case st := <-r.over:
		r.mu.Lock()
		defer r.mu.Unlock()
		return st, strings.Join(r.shown, "\n")
	case <-time.After(deadline):
		r.t.Fatal("the run is not over for its client")
		return nil, ""
	}
}

// TestFinalStates: a run that fails is recorded at once; the record has the final states of
// the tasks that were still being ended then.
func TestFinalStates(t *testing.T) {
	t.Parallel()
	r := startRunning(t, 0)
	r.exited(0, 1, &clusterpb.Exited{Code: 3})
	r.wait()
	r.exited(1, 1, &clusterpb.Exited{Signal: 15})
	var dir string
	r.do(func() { dir = r.runs.find(1).status.GetDir() })
	b, err := os.ReadFile(filepath.Join(dir, results.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	st := &clusterpb.RunStatus{}
	if err := protojson.Unmarshal(b, st); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"exited", "ended"} {
		if got := st.GetTasks()[i].GetState(); got != want {
			t.Errorf("worker:%d is recorded as %s, not %s", i, got, want)
		}
	}
}

// TestFinishedAfterItsLastLine: the word of a task's end overtakes its lines, which come on
// another stream; a run is over for its client when every line has come.
func TestFinishedAfterItsLastLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRunning(t, 0)
		r.exited(0, 1, &clusterpb.Exited{})
		r.exited(1, 1, &clusterpb.Exited{Lines: 2})
		time.Sleep(delay)
		r.wrote(1, 1, 0, false, "first")
		time.Sleep(delay)
		r.wrote(1, 1, 1, false, "last")
		st, shown := r.wait()
		if shown != "[worker:1] first\n[worker:1] last" || st.GetState() != "finished" || st.GetLines() != 2 {
			t.Errorf("the run is %s with %d lines, and showed\n%s", st.GetState(), st.GetLines(), shown)
		}
	})
}

// TestEndOfEarlierAttempt: that an attempt's stream has ended says nothing of the next one's,
// also when that has been launched by then.
func TestEndOfEarlierAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRunning(t, 1)
		r.exited(0, 1, &clusterpb.Exited{})
		r.exited(1, 1, &clusterpb.Exited{Code: 3, Lines: 1})
		synctest.Wait() // for the next attempt
		r.enter(2)
		r.wrote(1, 1, 0, true, "tried")
		r.wrote(0, 1, 0, true)
		r.exited(0, 2, &clusterpb.Exited{})
		r.exited(1, 2, &clusterpb.Exited{Lines: 1})
		time.Sleep(delay / 4)
		r.wrote(1, 2, 0, true, "reported")
		r.wrote(0, 2, 0, true)
		if st, shown := r.wait(); !strings.Contains(shown, "[worker:1] reported") || !strings.Contains(shown, "tried") ||
			st.GetState() != "finished" {
			t.Errorf("the run is %s and showed\n%s", st.GetState(), shown)
		}
	})
}

// TestFinishedAfterWhatATaskLeft: a process that a task left running may still write.
func TestFinishedAfterWhatATaskLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRunning(t, 0)
		r.wrote(1, 1, 0, false, "first")
		r.exited(0, 1, &clusterpb.Exited{})
		r.exited(1, 1, &clusterpb.Exited{Lines: 1, Open: true})
		time.Sleep(delay)
		r.wrote(1, 1, 1, true, "from behind")
		if _, shown := r.wait(); !strings.HasSuffix(shown, "[worker:1] from behind") {
			t.Errorf("it showed\n%s", shown)
		}
	})
}

// TestFailedAfterItsLastLine: a failure is reported once the lines of the failed task have
// arrived, without waiting for its peer, which still runs.
func TestFailedAfterItsLastLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRunning(t, 0)
		r.exited(1, 1, &clusterpb.Exited{Code: 3, Lines: 1, Open: true})
		time.Sleep(delay / 8)
		r.wrote(1, 1, 0, false, "its last words")
		if st, shown := r.wait(); !strings.HasSuffix(shown, "[worker:1] its last words") || st.GetState() != "failed" {
			t.Errorf("the run is %s and showed\n%s", st.GetState(), shown)
		}
	})
}

// TestLinesOfLostExecutor: lines that cannot come any more are not waited for, and a note
// says of which task they may be missing.
func TestLinesOfLostExecutor(t *testing.T) {
	t.Parallel()
	r := startRunning(t, 0)
	r.wrote(1, 1, 0, false, "first")
	r.do(func() { r.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "preempted"}) })
	if st, shown := r.wait(); !strings.Contains(shown, "the last lines of worker:1 may be missing") ||
		st.GetState() != "failed" {
		t.Errorf("the run is %s and showed\n%s", st.GetState(), shown)
	}
}

// TestFollowersSeeEachLineOnce: who begins to follow while lines are kept finds each of
// them either in the store or among those that come.
func TestFollowersSeeEachLineOnce(t *testing.T) {
	t.Parallel()
	const lines, followers = 2000, 20
	s := logstore.NewStore(t.TempDir(), logstore.DefaultQuota(), nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range lines {
			s.Append(&clusterpb.LogBatch{
				Run: 1, Task: "worker:0", Attempt: 1, First: uint64(i), Lines: []*clusterpb.Line{{Text: fmt.Sprint(i)}},
			})
		}
	}()
	var all sync.WaitGroup
	for range followers {
		all.Go(func() {
			var mu sync.Mutex
			var live []*clusterpb.Line
			since, leave := s.Subscribe(1, func(lines []*clusterpb.Line) {
				mu.Lock()
				defer mu.Unlock()
				live = append(live, lines...)
			})
			before, _, err := s.Read(logstore.Query{Run: 1, Until: since})
			if err != nil {
				t.Error(err)
			}
			<-done
			leave()
			mu.Lock()
			defer mu.Unlock()
			if len(before)+len(live) != lines {
				t.Errorf("%d were kept and %d came, of %d", len(before), len(live), lines)
			}
			for i, l := range append(before, live...) {
				if l.GetText() != fmt.Sprint(i) {
					t.Errorf("line %d is %q", i, l.GetText())
					return
				}
			}
		})
	}
	all.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
