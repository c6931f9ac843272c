package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// player translates lines of a transcript into events of a Machine and prints the actions.
type player struct {
	t   *testing.T
	l   *Machine
	run int32
	out bytes.Buffer
	// armed holds the running timers: a transcript cannot fire another one.
	armed       map[string]bool
	holdFiles   bool
	holdAnswers bool
}

func play(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	p := &player{t: t}
	for block := range strings.SplitSeq(strings.TrimRight(script, "\n"), "\n\n") {
		input, _, _ := strings.Cut(block, "\n----")
		p.out.Reset()
		for line := range strings.Lines(input) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if err := p.do(line); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n", input, p.out.String())
	}
	return out.String()
}

func (p *player) do(line string) error {
	f := strings.Fields(line)
	opts := map[string]string{}
	var words []string
	for _, w := range f[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = strings.ReplaceAll(v, "_", " ")
		} else {
			words = append(words, w)
		}
	}
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch f[0] {
	case "cluster":
		return p.cluster(opts)
	case "up":
		for _, x := range p.l.execs {
			p.step(cluster.Granted{Executor: x.ID, Attempt: x.Attempt, Host: "host" + string(x.ID)})
			p.step(AgentJoined{
				Exec: x.ID, Attempt: x.Attempt, Incarnation: "i" + string(x.ID), Host: "host" + string(x.ID), Address: "10.0.0." +
					string(x.ID), Warm: true,
			})
		}
	case "pending":
		p.step(cluster.Pending{Executor: cluster.ExecutorID(word(0)), Why: strings.Join(words[1:], " ")})
	case "taking-over": // only directly after the cluster line
		p.l.takingOver = true
	case "reallocated":
		x := p.l.Executor(cluster.ExecutorID(word(0)))
		p.step(cluster.Reallocated{Executor: x.ID, Attempt: x.Attempt + 1})
	case "granted":
		x := p.l.Executor(cluster.ExecutorID(word(0)))
		p.step(cluster.Granted{Executor: x.ID, Attempt: x.Attempt, Host: "host" + word(0), Recovered: word(1) == "recovered"})
	case "backed-off":
		attempts := map[cluster.ExecutorID]int{}
		for _, w := range words {
			attempts[cluster.ExecutorID(w)] = p.l.Executor(cluster.ExecutorID(w)).Attempt + 1
		}
		p.step(cluster.BackedOff{Attempts: attempts, Why: "another is half filled too"})
	case "lost":
		by := map[string]cluster.LostBy{
			"": cluster.LostByEngine, "error": cluster.LostByError, "memory": cluster.LostByMemory, "host": cluster.LostByHost,
			"kill": cluster.LostByKill,
		}[opts["by"]]
		x := p.l.Executor(cluster.ExecutorID(word(0)))
		p.step(cluster.Lost{Executor: x.ID, Attempt: x.Attempt, By: by, Cause: strings.Join(words[1:], " ")})
	case "join":
		attempt, err := strconv.Atoi(word(1))
		if err != nil {
			return err
		}
		p.step(AgentJoined{
			Exec: cluster.ExecutorID(word(0)), Attempt: attempt, Incarnation: "i" + word(0) + "." + word(1), Host: "host" +
				word(0), Address: "10.0.0." + word(0), Warm: word(2) == "warm",
		})
	case "rejoin", "rejoin-idle":
		x := p.l.Executor(cluster.ExecutorID(word(0)))
		e := AgentJoined{
			Exec: x.ID, Attempt: x.Attempt, Incarnation: x.agent.incarnation, Host: x.Host, Address: x.agent.address, Warm: true,
		}
		if f[0] == "rejoin" {
			e.Tasks = []*clusterpb.RunningTask{{Run: p.run, Task: x.Task.String()}}
		}
		p.step(e)
	case "warmed":
		p.step(AgentWarm{cluster.ExecutorID(word(0))})
	case "disconnected":
		x := p.l.Executor(cluster.ExecutorID(word(0)))
		p.step(AgentDisconnected{x.ID, x.agent.incarnation, word(1) == "suddenly"})
	case "silent":
		d, err := time.ParseDuration(word(1))
		if err != nil {
			return err
		}
		p.step(AgentSilent{cluster.ExecutorID(word(0)), d})
	case "same-host": // the second executor is on the host of the first
		p.l.Executor(cluster.ExecutorID(word(1))).Host = p.l.Executor(cluster.ExecutorID(word(0))).Host
	case "answers":
		p.answer(cluster.ExecutorID(word(0)))
	case "recovered":
		p.step(Recovered{})
	case "refused":
		p.step(Refused{&clusterpb.Failure{Kind: "engine", Summary: strings.Join(words, " ")}})
	case "released":
		p.step(Released{})
	case "engine-ended":
		p.step(cluster.Terminated{Cause: strings.Join(words, " ")})
	case "timer":
		name := strings.Join(words, " ")
		if !p.armed[name] {
			return errors.New("this timer is not running")
		}
		delete(p.armed, name)
		p.step(TimerFired{name})
	case "hold-answers": // to probes
		p.holdAnswers = true
	case "hold-files": // until files-settled
		p.holdFiles = true
	case "files-settled":
		p.step(FilesSettled{p.run, p.l.run.Attempt})
	case "clients":
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return err
		}
		p.step(ClientsChanged{n})
	case "reset":
		p.step(ResetRequested{word(0) == "hard"})
	case "shutdown":
		p.step(ShutdownRequested{"asked to"})
	case "state":
		p.state()
	default:
		return p.runEvent(f[0], words, opts)
	}
	return nil
}

func (p *player) cluster(opts map[string]string) error {
	var roles []*clusterpb.Role
	lim := DefaultLimits()
	for _, name := range slices.Sorted(maps.Keys(opts)) {
		n, err := strconv.Atoi(opts[name])
		if err != nil || strings.Contains(name, ".") {
			continue
		}
		r := &clusterpb.Role{Name: name, Count: int32(n), Kind: opts[name+".kind"]}
		if after := opts[name+".after"]; after != "" {
			r.DependsOn = strings.Split(after, ",")
		}
		if d, err := time.ParseDuration(opts[name+".end"]); err == nil {
			r.EndWithinMillis = d.Milliseconds()
		}
		roles = append(roles, r)
	}
	if err := cluster.Validate(roles); err != nil {
		return err
	}
	lim.Idle = 0
	if d, err := time.ParseDuration(opts["idle"]); err == nil {
		lim.Idle = d
	}
	if d, err := time.ParseDuration(opts["reserve"]); err == nil {
		lim.Reserve = d
	}
	var execs []cluster.ExecutorRequest
	for i, t := range cluster.Tasks(roles) {
		execs = append(execs, cluster.ExecutorRequest{ID: cluster.ExecutorID(strconv.Itoa(i)), Task: t})
	}
	p.armed, p.holdAnswers = map[string]bool{}, false
	p.l = New(execs, roles, lim, opts["from"] == "another")
	p.print(p.l.Open())
	return nil
}

func (p *player) runEvent(verb string, words []string, opts map[string]string) error {
	tasks := func() []cluster.TaskID {
		if len(words) == 0 {
			return p.l.Tasks()
		}
		var ts []cluster.TaskID
		for _, w := range words {
			t, err := cluster.ParseTask(w)
			if err != nil {
				panic(err)
			}
			ts = append(ts, t)
		}
		return ts
	}
	num := func(k string) int32 {
		n, err := strconv.Atoi(opts[k])
		if err != nil {
			return 0
		}
		return int32(n)
	}
	dur := func(k string) time.Duration {
		d, err := time.ParseDuration(opts[k])
		if err != nil {
			return 0
		}
		return d
	}
	switch verb {
	case "start":
		p.run++
		p.step(StartRequested{RunSpec{p.run, &clusterpb.RunOptions{
			MaxRestarts: num("restarts"), MaxLosses: num("losses"), StepTimeoutMillis: dur("step").Milliseconds(),
			RunTimeoutMillis: dur("run").Milliseconds(),
		}}})
	case "prepared":
		for i, x := range p.l.execs {
			p.step(PortPrepared{Exec: x.ID, Run: p.run, Attempt: p.l.run.Attempt, Port: int32(7000 + 100*p.l.run.Attempt + i)})
		}
	case "entered":
		for _, t := range tasks() {
			p.step(ProgramEntered{p.run, t})
		}
	case "joined":
		for _, t := range tasks() {
			p.step(ServerJoined{p.run, t})
		}
	case "feed-failed":
		run, err := strconv.Atoi(words[0])
		if err != nil {
			return err
		}
		p.step(FeedFailed{int32(run), &clusterpb.Failure{Kind: "task", ExitCode: 1, Summary: strings.Join(words[1:], " ")}})
	case "exit":
		for _, t := range tasks() {
			p.step(ProgramExited{Run: p.run, Attempt: p.l.run.task(t).Attempt, Task: t, Exit: &clusterpb.Exited{
				Code: num("code"), Signal: num("signal"), Exception: opts["exception"], Reason: opts["reason"],
				OutOfMemory: opts["oom"] != "",
			}})
		}
	case "stopped":
		t := tasks()[0]
		p.step(UsageReported{p.l.run.task(t).exec, map[cluster.TaskID]bool{t: true}})
	case "steps":
		every, _ := strconv.ParseFloat(opts["every"], 64)
		for _, t := range tasks() {
			p.step(StepAnswered{p.run, p.l.run.task(t).Attempt, t, &clusterpb.Step{
				Round: int32(p.l.run.stop.round), Counter: opts["counter"], Step: int64(num("step")), Stride: 1,
				ReportSeconds: every, Passed: opts["passed"] != "",
			}})
		}
	case "leaving":
		for _, t := range tasks() {
			p.step(StopReached{p.run, p.l.run.task(t).Attempt, t})
		}
	case "step":
		p.step(StepMoved{})
	case "stop":
		p.step(StopRequested{Grace: dur("grace")})
	default:
		return fmt.Errorf("no such event")
	}
	return nil
}

func (p *player) step(e Event) {
	actions := p.l.Step(e)
	p.print(actions)
	checkCounts(p.t, p.l)
	for _, a := range actions {
		if a, ok := a.(SettleFiles); ok && !p.holdFiles {
			p.step(FilesSettled(a))
		}
		if a, ok := a.(SendInstruction); ok && a.What.GetProbe() != nil && !p.holdAnswers {
			p.answer(a.Exec)
		}
	}
}

// answer is the heartbeat of an executor's agent.
func (p *player) answer(id cluster.ExecutorID) {
	stopped := map[cluster.TaskID]bool{}
	if x := p.l.Executor(id); x.Busy {
		stopped[x.Task] = p.l.run.task(x.Task).Stopped
	}
	p.step(UsageReported{id, stopped})
}
