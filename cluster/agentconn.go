package cluster

import (
	"sync"
	"time"

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
	why    string    // set before closed is
	heard  time.Time // the last word from it; the coordinator's loop's
}

func newAgentConn(exec ExecutorID) *agentConn {
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
