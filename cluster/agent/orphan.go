package agent

import (
	"context"
	"fmt"
	"time"
)

// connected implements handler. It stops the timeout without a driver.
func (a *Agent) connected() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.driver.welcomed = true
	a.driver.orphan.Stop()
	a.log.Info("joined", "coordinator", a.cfg.GetDriver().GetCoordinator())
}

// disconnected implements handler. It starts the timeouts without a driver: after grace the tasks are ended, after
// idle the agent.
func (a *Agent) disconnected(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.driver.lastError = err
	if !a.driver.welcomed {
		return // firstJoin's timer runs
	}
	a.driver.welcomed = false
	a.log.Warn("the connection to the driver broke; the tasks go on, and are ended when no driver has connected within "+
		"the grace period", "error", err, "grace", a.driver.grace)
	grace, idle := a.driver.grace, a.driver.idle
	a.driver.orphan.Stop()
	a.driver.orphan = time.AfterFunc(grace, func() { a.orphaned(grace, idle) })
}

func (a *Agent) orphaned(grace, idle time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.driver.welcomed || a.ended {
		return
	}
	a.log.Warn("the tasks are ended, because no driver has connected within the grace period", "grace", grace)
	for _, t := range a.tasks() {
		a.work.Go(func() {
			t.end(context.Background(), orphanTerm,
				fmt.Sprintf("no driver of the cluster connected to its executor for %v", grace))
		})
	}
	if idle > 0 {
		a.driver.orphan = time.AfterFunc(idle, func() { a.giveUp(idle) })
	}
}

// giveUp ends the agent unless a driver has just connected.
func (a *Agent) giveUp(idle time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.driver.welcomed {
		a.cancel(fmt.Errorf("no driver of the cluster connected for %v, so this executor ends", idle))
	}
}
