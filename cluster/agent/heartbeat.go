package agent

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// heartbeats sends heartbeats until ctx ends.
func (a *Agent) heartbeats(ctx context.Context) {
	for {
		a.mu.Lock()
		beat := a.driver.beat
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(beat):
		}
		a.heartbeat()
	}
}

func (a *Agent) heartbeat() {
	a.mu.Lock()
	tasks := a.tasks()
	a.mu.Unlock()
	m := &clusterpb.Heartbeat{UnixNano: time.Now().UnixNano(), Gpus: a.gpus.meter.Last()}
	for _, t := range tasks {
		if pid := t.pid(); pid != 0 {
			if u := usage(t.launch.GetTask(), pid); u != nil {
				m.Usage = append(m.Usage, u)
			}
		}
	}
	a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Heartbeat{Heartbeat: m}})
}
