package coordinator

import (
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// agentConn is an agent's Join stream. Instructions are sent in order; sending them does not
// block.
type agentConn struct {
	exec   cluster.ExecutorID
	mu     sync.Mutex
	queue  []*clusterpb.Instruction
	wake   chan struct{} // cap 1
	closed chan struct{} // closed by close
	once   sync.Once
	why    string // set before closed is

	// owned by the coordinator's loop
	heard   time.Time // time of the last message
	stalled time.Time // time of the last message after a silence
}

// hear records a message, and whether it came after a longer silence than usual.
func (a *agentConn) hear(now time.Time, usual time.Duration) {
	if now.Sub(a.heard) > usual {
		a.stalled = now
	}
	a.heard = now
}

// suddenPause is the time after a silence of an agent in which its messages may have waited, e.g. while the driver
// itself was stopped.
const suddenPause = 10 * time.Second

// spoke returns whether the agent was alive a moment ago: its last message is younger than
// usual, and did not end a silence within pause, e.g. when the driver itself was stopped.
func (a *agentConn) spoke(now time.Time, usual, pause time.Duration) bool {
	return now.Sub(a.heard) < usual && now.Sub(a.stalled) > pause
}

func newAgentConn(exec cluster.ExecutorID) *agentConn {
	return &agentConn{exec: exec, wake: make(chan struct{}, 1), closed: make(chan struct{}), heard: time.Now()}
}

func (a *agentConn) send(in *clusterpb.Instruction) {
	a.mu.Lock()
	a.queue = append(a.queue, in)
	a.mu.Unlock()
	notify(a.wake)
}

func (a *agentConn) take() []*clusterpb.Instruction {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queue
	a.queue = nil
	return q
}

func (a *agentConn) close(why string) { a.once.Do(func() { a.why = why; close(a.closed) }) }
