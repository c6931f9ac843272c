package lifecycle

// Step takes one event and returns what is to be done about it, in order.
func (l *Machine) Step(e Event) []Action {
	l.out = nil
	switch e := e.(type) {
	case Pending, Reallocated, BackedOff, Granted, LastLines, EngineLost, Recovered, EngineEnded, Refused:
		l.engineEvent(e)
	case AgentJoined, AgentWarm, EnvironmentUnfit, AgentFetching, AgentDisconnected:
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

// engineEvent takes what the engine tells.
func (l *Machine) engineEvent(e Event) {
	switch e := e.(type) {
	case Pending:
		if x := l.Executor(e.Exec); x != nil && (x.State == ExecutorPending || x.State == ExecutorGranted) {
			x.Why = e.Why
		}
	case Reallocated:
		l.anew(l.Executor(e.Exec), e.Attempt, "the engine has ended its executor", "asked for")
	case BackedOff:
		l.returned(e)
	case Granted:
		if x := l.Executor(e.Exec); x != nil && e.Attempt >= x.Attempt && (x.State == ExecutorPending || x.State == ExecutorLost) {
			l.setState(x, ExecutorGranted)
			x.Attempt, x.Host, x.Why = e.Attempt, e.Host, "its agent has not called yet"
			x.kept = e.Kept
		}
	case LastLines:
		if x := l.Executor(e.Exec); x != nil && e.Attempt >= x.Attempt {
			x.said = e.Lines
		}
	case EngineLost:
		if x := l.Executor(e.Exec); x != nil && e.Attempt >= x.Attempt {
			l.lose(x, e.Cause)
		}
	case Recovered:
		longer := l.within() > l.limits.Reserve
		l.takingOver = false
		if kept := l.kept(); kept < len(l.execs) {
			l.note(true, "the engine kept %d of %d executors of the last driver; asking for %d new %s", kept, len(l.execs), len(l.execs)-kept, plural(len(l.execs)-kept, "executor"))
		}
		l.do(SetTimer{"return", l.limits.Heartbeat})
		if longer && l.state == Reserving {
			l.do(SetTimer{"reserve", l.within()})
		}
		l.becomeReady()
	case EngineEnded:
		l.over(e.Cause)
	case Refused:
		l.state = Failed
		l.do(ReservationFailed(e))
	}
}

// agentEvent takes what an agent tells.
func (l *Machine) agentEvent(e Event) {
	switch e := e.(type) {
	case AgentJoined:
		l.joined(e)
	case AgentWarm:
		if x := l.Executor(e.Exec); x != nil && x.State == ExecutorJoined {
			l.setState(x, ExecutorReady)
			x.agent.warm, x.Why = true, ""
			l.launchDue()
			l.becomeReady()
		}
	case EnvironmentUnfit:
		if l.state == Reserving {
			l.reserveFailed(environmentFailed, e.Cause)
		}
	case AgentFetching:
		if x := l.Executor(e.Exec); x != nil && x.State == ExecutorJoined {
			x.Why = e.What
		}
	case AgentDisconnected:
		if x := l.Executor(e.Exec); x != nil && x.agent.incarnation == e.Incarnation && (x.State == ExecutorJoined || x.State == ExecutorReady) {
			l.setState(x, ExecutorSilent)
			x.Why, x.agent.sudden = "its connection broke", e.Sudden
			wait := l.limits.Heartbeat
			if e.Sudden {
				wait = min(wait, l.limits.Sudden)
			}
			l.do(SetTimer{"silent " + string(x.ID), wait})
		}
	}
}

// clientEvent takes what clients ask for.
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
