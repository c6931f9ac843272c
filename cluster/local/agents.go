package local

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// start starts an agent in a new session: it outlives the driver by the orphan grace period and the idle
// timeout.
func (a *allocation) start(id cluster.ExecutorID, attempt int) error {
	config, err := a.config(id, attempt)
	if err != nil {
		return err
	}
	input, err := config.Encode()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(a.logPath(id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of executor %s: %w", id, err)
	}
	defer log.Close()
	cmd := exec.Command(a.program(), "agent")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), log, log
	cmd.Dir = cmp.Or(a.req.Reserve.GetWorkingDir(), "/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ag, err := a.register(id, attempt, cmd)
	if err != nil {
		return fmt.Errorf("start the agent of executor %s: %w", id, err)
	}
	host, _ := os.Hostname() // "" if it fails
	a.emit(cluster.Granted{Executor: id, Attempt: attempt, Host: host, PID: cmd.Process.Pid})
	go func() {
		defer a.watchers.Done()
		err := cmd.Wait()
		close(ag.done)
		a.agentEnded(id, attempt, exitCause(cmd, err))
	}()
	return nil
}

// AgentProgram is the engine option with another program that starts agents, for example in another
// namespace.
const AgentProgram = "agent-program"

func (a *allocation) program() string {
	return cmp.Or(a.req.Reserve.GetEngine()[AgentProgram], a.req.Program)
}

// errReleased means that no more agents are started.
var errReleased = errors.New("the cluster is being released, so no more agents are started")

// register starts an agent's process with mu held, so that Release ends every agent.
func (a *allocation) register(id cluster.ExecutorID, attempt int, cmd *exec.Cmd) (agent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released {
		return agent{}, errReleased
	}
	if err := cmd.Start(); err != nil {
		return agent{}, err
	}
	ag := agent{Attempt: attempt, Process: state.ProcessOf(cmd.Process.Pid), done: make(chan struct{})}
	a.agents[id] = ag
	a.watchers.Add(1)
	return ag, nil
}

// adopt watches an agent that another driver started.
func (a *allocation) adopt(id cluster.ExecutorID, old agent) {
	old.done = make(chan struct{})
	a.mu.Lock()
	a.agents[id] = old
	a.mu.Unlock()
	host, _ := os.Hostname() // "" if it fails
	a.emit(cluster.Granted{Executor: id, Attempt: old.Attempt, Host: host, PID: old.Process.PID, Recovered: true})
	a.watchers.Go(func() {
		for old.Process.Alive() {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-a.stop:
				time.Sleep(20 * time.Millisecond)
			}
		}
		close(old.done)
		a.agentEnded(id, old.Attempt, "its agent ended")
	})
}

func exitCause(cmd *exec.Cmd, err error) string {
	if cmd.ProcessState == nil {
		return fmt.Sprintf("waiting for its agent failed: %v", err)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("its agent was killed by signal %d", ws.Signal())
	}
	return fmt.Sprintf("its agent ended with code %d", cmd.ProcessState.ExitCode())
}
