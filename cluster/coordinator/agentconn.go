package coordinator

import (
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// agentConn is an agent's Join stream as the loop sees it: instructions go in
// order and never wait for the network.
type agentConn struct {
	exec   cluster.ExecutorID
	mu     sync.Mutex
	queue  []*clusterpb.Instruction
	wake   chan struct{} // cap 1
	closed chan struct{} // closed by close
	once   sync.Once
	why    string // set before closed is

	// of the coordinator's loop
	heard   time.Time // the last word from it
	stalled time.Time // when it spoke after a silence
}

// hear notes that the agent spoke, and that it had not for longer than usual.
func (a *agentConn) hear(now time.Time, usual time.Duration) {
	if now.Sub(a.heard) > usual {
		a.stalled = now
	}
	a.heard = now
}

// spoke is whether the agent was there a moment ago: its connection was no longer
// silent than usual, nor just heard again, as after a driver's own pause.
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
