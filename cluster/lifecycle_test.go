package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew; commit only what you understand")

// TestLifecycle plays the transcripts in testdata/lifecycle: a block is events, a
// line each, then ---- and the actions they caused, then the state where it is asked for.
//
//	cluster chief=1 worker=2 ps=1 idle=30m   a cluster of these roles, first of all; also
//	db=1 db.kind=sidecar worker.after=db,ps worker.end=10s
//	up                                       every agent joins and warms
//	pending|granted|lost ID [words]          the engine's events; returned ID…: these are given back
//	join ID [attempt] [warm] · warmed ID · gone ID      an agent's
//	rejoin ID · rejoin-idle ID               with its task, or without one
//	start [restarts=N] [step=T] [run=T]      a start
//	prepared · entered [TASK…] · joined TASK             all, or some
//	exit TASK [code=N] [signal=N] [exception=E] [reason=R]
//	stopped TASK                             a heartbeat says state T
//	steps [TASK…] counter=C step=N [every=SECONDS] [passed=yes]    answers to the last AskStep or ActAtStep
//	leaving TASK…                            the request to stop has reached these
//	step · stop [grace] · reset [hard] · clients N · shutdown · timer NAME
//	state                                    prints executors and run
func TestLifecycle(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/lifecycle/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs (go test -run TestLifecycle -rewrite shows it in git diff); got:\n%s", file, got)
			}
		})
	}
}

// player holds a lifecycle and turns words into events.
type player struct {
	t   *testing.T
	l   *lifecycle
	run int32
	out bytes.Buffer
	// armed holds the timers that run: a test cannot fire another.
	armed map[string]bool
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
			p.step(evGranted{x.id, x.attempt, "host" + string(x.id), false})
			p.step(evJoined{exec: x.id, attempt: x.attempt, incarnation: "i" + string(x.id), host: "host" + string(x.id), address: "10.0.0." + string(x.id), warm: true})
		}
	case "pending":
		p.step(evPending{ExecutorID(word(0)), strings.Join(words[1:], " ")})
	case "taking-over": // right after the cluster
		p.l.takingOver = true
	case "anew":
		p.step(evAnew{ExecutorID(word(0)), p.l.exec(ExecutorID(word(0))).attempt + 1})
	case "granted":
		p.step(evGranted{ExecutorID(word(0)), p.l.exec(ExecutorID(word(0))).attempt, "host" + word(0), word(1) == "kept"})
	case "returned":
		attempts := map[ExecutorID]int{}
		for _, w := range words {
			attempts[ExecutorID(w)] = p.l.exec(ExecutorID(w)).attempt + 1
		}
		p.step(evReturned{attempts, "another is half filled too"})
	case "lost":
		p.step(evLost{ExecutorID(word(0)), p.l.exec(ExecutorID(word(0))).attempt, strings.Join(words[1:], " ")})
	case "join":
		attempt, err := strconv.Atoi(word(1))
		if err != nil {
			return err
		}
		p.step(evJoined{
			exec: ExecutorID(word(0)), attempt: attempt, incarnation: "i" + word(0) + "." + word(1), host: "host" + word(0), address: "10.0.0." + word(0), warm: word(2) == "warm",
		})
	case "rejoin", "rejoin-idle":
		x := p.l.exec(ExecutorID(word(0)))
		e := evJoined{exec: x.id, attempt: x.attempt, incarnation: x.incarnation, host: x.host, address: x.address, warm: true}
		if f[0] == "rejoin" {
			e.tasks = []*clusterpb.RunningTask{{Run: p.run, Task: x.task.String()}}
		}
		p.step(e)
	case "warmed":
		p.step(evWarmed{ExecutorID(word(0))})
	case "gone":
		x := p.l.exec(ExecutorID(word(0)))
		p.step(evDisconnected{x.id, x.incarnation, word(1) == "suddenly"})
	case "recovered":
		p.step(evRecovered{})
	case "over":
		p.step(evOver{strings.Join(words, " ")})
	case "timer":
		name := strings.Join(words, " ")
		if !p.armed[name] {
			return errors.New("this timer does not run")
		}
		delete(p.armed, name)
		p.step(evTimer{name})
	case "clients":
		n, err := strconv.Atoi(word(0))
		if err != nil {
			return err
		}
		p.step(evClients{n})
	case "reset":
		p.step(evReset{word(0) == "hard"})
	case "shutdown":
		p.step(evShutdown{"asked to"})
	case "state":
		p.state()
	default:
		return p.runEvent(f[0], words, opts)
	}
	return nil
}

func (p *player) cluster(opts map[string]string) error {
	var roles []*clusterpb.Role
	lim := defaultLimits()
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
	if err := Validate(roles); err != nil {
		return err
	}
	lim.idle = 0
	if d, err := time.ParseDuration(opts["idle"]); err == nil {
		lim.idle = d
	}
	if d, err := time.ParseDuration(opts["reserve"]); err == nil {
		lim.reserve = d
	}
	var execs []ExecutorRequest
	for i, t := range Tasks(roles) {
		execs = append(execs, ExecutorRequest{ID: ExecutorID(strconv.Itoa(i)), Task: t})
	}
	p.armed = map[string]bool{}
	p.l = newLifecycle(execs, roles, lim)
	p.l.takingOver = opts["from"] == "another"
	p.print(p.l.open())
	return nil
}

func (p *player) runEvent(verb string, words []string, opts map[string]string) error {
	tasks := func() []TaskID {
		if len(words) == 0 {
			return p.l.sortedTasks()
		}
		var ts []TaskID
		for _, w := range words {
			t, err := ParseTask(w)
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
		p.step(evStart{runSpec{id: p.run, maxRestarts: int(num("restarts")), stepTimeout: dur("step"), runTimeout: dur("run")}})
	case "prepared":
		for i, x := range p.l.execs {
			p.step(evPrepared{exec: x.id, run: p.run, attempt: p.l.run.attempt, port: int32(7000 + 100*p.l.run.attempt + i)})
		}
	case "entered":
		for _, t := range tasks() {
			p.step(evEntered{p.run, t})
		}
	case "joined":
		for _, t := range tasks() {
			p.step(evServerJoin{p.run, t})
		}
	case "exit":
		for _, t := range tasks() {
			p.step(evExited{run: p.run, attempt: p.l.run.task(t).attempt, task: t, exit: &clusterpb.Exited{
				Code: num("code"), Signal: num("signal"), Exception: opts["exception"], Reason: opts["reason"], OutOfMemory: opts["oom"] != "",
			}})
		}
	case "stopped":
		t := tasks()[0]
		p.step(evUsage{p.l.run.task(t).exec, map[TaskID]bool{t: true}})
	case "steps":
		every, _ := strconv.ParseFloat(opts["every"], 64)
		for _, t := range tasks() {
			p.step(evStepAnswer{p.run, p.l.run.task(t).attempt, t, &clusterpb.Step{
				Round: int32(p.l.run.stop.round), Counter: opts["counter"], Step: int64(num("step")), Stride: 1, ReportSeconds: every, Passed: opts["passed"] != "",
			}})
		}
	case "leaving":
		for _, t := range tasks() {
			p.step(evStopping{p.run, p.l.run.task(t).attempt, t})
		}
	case "step":
		p.step(evStep{})
	case "stop":
		p.step(evStop{grace: dur("grace")})
	default:
		return fmt.Errorf("no such event")
	}
	return nil
}

func (p *player) step(e event) {
	p.print(p.l.step(e))
	checkCounts(p.t, p.l)
}

func (p *player) print(actions []action) {
	for _, a := range actions {
		switch a := a.(type) {
		case actReplace:
			fmt.Fprintf(&p.out, "replace %s\n", a.exec)
		case actSend:
			fmt.Fprintf(&p.out, "send %s %s\n", a.exec, instructionWords(a.what))
		case actTimer:
			if a.after > 0 {
				p.armed[a.name] = true
				fmt.Fprintf(&p.out, "timer %s %s\n", a.name, a.after)
			} else if p.armed[a.name] {
				delete(p.armed, a.name)
				fmt.Fprintf(&p.out, "cancel %s\n", a.name)
			}
		case actReady:
			fmt.Fprintln(&p.out, "ready")
		case actReserveFailed:
			fmt.Fprintf(&p.out, "not reserved: %s\n", a.failure.GetSummary())
		case actNote:
			fmt.Fprintf(&p.out, "note: %s\n", a.text)
		case actRelease:
			fmt.Fprintf(&p.out, "release: %s\n", a.reason)
		case actLaunch:
			fmt.Fprintf(&p.out, "launch %s at %s\n", a.task, a.exec)
		case actRunEntered:
			fmt.Fprintln(&p.out, "run entered")
		case actRunOver:
			fmt.Fprintf(&p.out, "run over: %s\n", overWords(p.l.run))
		case actStartFailed:
			fmt.Fprintf(&p.out, "start failed: %s\n", a.failure.GetSummary())
		case actRunGone:
			fmt.Fprintln(&p.out, "run gone")
		}
	}
}

func overWords(r *run) string {
	if r == nil {
		return "never begun"
	}
	s := r.state.String()
	if r.failure != nil {
		s += fmt.Sprintf(" (%s, code %d): %s", r.failure.GetKind(), r.failure.GetExitCode(), r.failure.GetSummary())
	}
	return s
}

func instructionWords(in *clusterpb.Instruction) string {
	switch i := in.GetInstruction().(type) {
	case *clusterpb.Instruction_Prepare:
		return fmt.Sprintf("prepare %d.%d", i.Prepare.GetRun(), i.Prepare.GetAttempt())
	case *clusterpb.Instruction_EndRun:
		return fmt.Sprintf("end %d within %s", i.EndRun.GetRun(), time.Duration(i.EndRun.GetGraceMillis())*time.Millisecond)
	case *clusterpb.Instruction_Release:
		return "release"
	case *clusterpb.Instruction_Signal:
		return fmt.Sprintf("signal %d %s %s", i.Signal.GetRun(), i.Signal.GetTask(), syscall.Signal(i.Signal.GetSignal()))
	case *clusterpb.Instruction_Probe:
		return "probe"
	case *clusterpb.Instruction_TrainingOver:
		return "training over"
	case *clusterpb.Instruction_AskStep:
		return "ask step"
	case *clusterpb.Instruction_ActAtStep:
		words := fmt.Sprintf("%s at step %d of %s", i.ActAtStep.GetAction(), i.ActAtStep.GetStep(), i.ActAtStep.GetCounter())
		if i.ActAtStep.GetConfirmed() {
			words += ", confirmed"
		}
		return words
	}
	return fmt.Sprintf("%T", in.GetInstruction())
}

func (p *player) state() {
	fmt.Fprintf(&p.out, "cluster %s\n", p.l.state)
	for _, x := range p.l.execs {
		fmt.Fprintf(&p.out, "  %s %s %s busy=%t %s\n", x.id, x.task, x.state, x.busy, x.why)
	}
	if r := p.l.run; r != nil {
		fmt.Fprintf(&p.out, "run %d %s restarts=%d\n", r.spec.id, r.state, r.restarts)
		for _, t := range r.tasks {
			state := t.state.String()
			if t.state == taskWaiting && t.awaits != "" {
				state += " for " + t.awaits
			}
			fmt.Fprintf(&p.out, "  %s %s echo=%t\n", t.id, state, t.echo)
		}
	}
}

// TestEchoes: whose words tell of a peer's trouble.
func TestEchoes(t *testing.T) {
	t.Parallel()
	for exception, echo := range map[string]bool{
		"UnavailableError: tasks are unhealthy":                                                                                                           true,
		"RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:51090":                                                    true,
		"ValueError: UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:1: Connection reset by peer":   true,
		"torch.distributed.DistBackendError: NCCL error, unhandled system error\nncclRemoteError: A call failed possibly due to a remote process exiting": true,
		"ConnectionResetError: [Errno 104] Connection reset by peer":                                                                                      false,
		"ValueError: bad batch": false,
	} {
		if got := isEcho(&clusterpb.Exited{Code: 1, Exception: exception}); got != echo {
			t.Errorf("%q is an echo: %v", exception, got)
		}
	}
}
