package lifecycle

import "github.com/tfcluster/tfcluster/cluster"

// Step processes one event and returns the resulting actions, in order.
func (l *Machine) Step(e Event) []Action {
	l.out = nil
	switch e := e.(type) {
	case cluster.Event, Recovered, Refused:
		l.engineEvent(e)
	case AgentJoined, AgentLost, AgentWarm, EnvironmentUnfit, AgentFetching, AgentDisconnected, AgentSilent:
		l.agentEvent(e)
	case ClientsChanged, ResetRequested, RenewRequested, ShutdownRequested:
		l.clientEvent(e)
	case TimerFired:
		l.timer(e.Name)
	case Released:
		l.state = Releasing
	default:
		l.stepRun(e)
	}
	l.idle()
	return l.out
}

// engineEvent processes an event of the engine.
func (l *Machine) engineEvent(e Event) {
	switch e := e.(type) {
	case cluster.Pending:
		if x := l.Executor(e.Executor); x != nil && (x.State == ExecutorPending || x.State == ExecutorGranted) {
			x.Why = e.Why
		}
	case cluster.Reallocated:
		l.reallocated(l.Executor(e.Executor), e.Attempt, "the engine has ended its executor", "requested")
	case cluster.BackedOff:
		l.backedOff(e)
	case cluster.Granted:
		if x := l.Executor(e.Executor); x != nil && e.Attempt >= x.Attempt &&
			(x.State == ExecutorPending || x.State == ExecutorLost) {
			l.setState(x, ExecutorGranted)
			x.Attempt, x.Host, x.Why = e.Attempt, e.Host, "its agent has not connected yet"
			x.recovered = e.Recovered
		}
	case cluster.Lost:
		if x := l.Executor(e.Executor); x != nil && e.Attempt >= x.Attempt {
			x.lastLines = e.LastLines
			l.lose(x, e.By, e.Cause)
		}
	case Recovered:
		longer := l.reserveTimeout() > l.limits.Reserve
		l.takingOver = false
		if kept := l.recovered(); kept < len(l.execs) {
			l.note(true, "a new driver has taken the cluster over: %d of %d executors are still there; requesting %d new %s",
				kept, len(l.execs), len(l.execs)-kept, plural(len(l.execs)-kept, "executor"))
		}
		l.do(SetTimer{"return", l.limits.comeBack})
		if longer && l.state == Reserving {
			l.do(SetTimer{"reserve", l.reserveTimeout()})
		}
		l.becomeReady()
	case cluster.Terminated:
		l.engineEnded(e.Cause)
	case Refused:
		l.state = Failed
		l.do(ReservationFailed(e))
	}
}

// agentEvent processes an event of an agent.
func (l *Machine) agentEvent(e Event) {
	switch e := e.(type) {
	case AgentJoined:
		l.joined(e)
	case AgentLost:
		if x := l.Executor(e.Exec); x != nil && e.Attempt >= x.Attempt {
			l.lose(x, e.By, e.Cause)
		}
	case AgentWarm:
		if x := l.Executor(e.Exec); x != nil && x.State == ExecutorJoined {
			l.setState(x, ExecutorReady)
			x.Why = ""
			l.launchDue()
			l.becomeReady()
		}
	case EnvironmentUnfit:
		if l.state == Reserving {
			l.reserveFailed(environmentFailed, e.Cause, environmentRemedy(e.Cause))
		}
	case AgentFetching:
		if x := l.Executor(e.Exec); x != nil && x.State == ExecutorJoined {
			x.Why = e.What
		}
	case AgentSilent:
		l.silent(l.Executor(e.Exec), e.For)
	case AgentDisconnected:
		if x := l.Executor(e.Exec); x != nil && x.agent.incarnation == e.Incarnation &&
			(x.State == ExecutorJoined || x.State == ExecutorReady) {
			l.setState(x, ExecutorSilent)
			x.Why, x.agent.sudden = "its connection broke", e.Sudden
			if e.Sudden {
				l.do(SetTimer{"silent " + string(x.ID), min(l.limits.Heartbeat, l.limits.Sudden)})
			}
		}
	}
}

// clientEvent processes a request of a client.
func (l *Machine) clientEvent(e Event) {
	switch e := e.(type) {
	case ClientsChanged:
		l.clients = e.Count
	case ResetRequested:
		l.reset(e.Hard)
	case RenewRequested:
		l.renew()
	case ShutdownRequested:
		l.shutdown(e.Reason)
	}
}
