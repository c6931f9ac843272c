package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/manifest/git"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

var startVerb = row{
	Verb: command.Verb{
		Name: "start", Summary: "start a program on every task; returns when all have entered it", Magic: true,
		Words: "PROGRAM [words]", Program: true, Cell: true, MaxWords: -1, Options: append(startOptions(), clusterOption),
		Example: "start --wait main_fun 0.01",
		Long: "PROGRAM is a function of the notebook (main_fun), a script (train.py, train.py:function), " +
			"or with %%tfcluster start the cell's body. " +
			"Options stand before it; every word after it is the program's.",
		Operand: command.OperandProgram,
	},
	run: (*invocation).start, ownInterrupts: true, configured: true,
}

func startOptions() []command.Option {
	return []command.Option{
		{Name: "args", Kind: command.KindObject, Help: "object of the notebook given to main_fun instead of the arguments"},
		{Name: "again", Kind: command.KindFlag, Help: "the last program and its arguments"},
		{
			Name: "resume", Kind: command.KindResume, Meta: "RUN|last", Bare: "last",
			Help: "take up the checkpoints of an older run",
		},
		{Name: "wait", Kind: command.KindFlag, Help: "wait for the end, as the verb wait does"},
		{
			Name: "max-restarts", Kind: command.KindCount, Max: 1000, Default: "0", Help: "restarts after a lost or failed task",
		},
		{
			Name: "max-losses", Kind: command.KindCount, Max: 1000, Default: "10", Help: "with --max-restarts: " +
				"restarts that it does not count, because the engine took an executor away (preemption, a lost node)",
		},
		{Name: "step-timeout", Kind: command.KindDuration, Help: "end the run when no step is reported for this long"},
		{Name: "run-timeout", Kind: command.KindDuration, Help: "end the run after this long"},
		{
			Name: "fabric", Kind: command.KindChoice,
			Choices: []string{string(fabric.Auto), string(fabric.TCP), string(fabric.RDMA)}, Default: string(fabric.Auto),
			Help: "network of NCCL and of collective calls: auto uses RDMA if every executor can, tcp never, " +
				"rdma refuses to start if one cannot; status --fabric shows it",
		},
		{Name: "show", Kind: command.KindShow, Meta: "all|chief|TASK", Default: "all", Help: "whose lines the cell shows"},
		{
			Name: "no-callback", Kind: command.KindFlag,
			Help: "do not add the callback that reports progress to Keras, Lightning and Transformers",
		},
		{
			Name: "no-keras-patch", Kind: command.KindFlag,
			Help: "leave Keras 3's fit under MultiWorkerMirroredStrategy as it is",
		},
		{Name: "replace", Kind: command.KindFlag, Help: "end an active run first"},
		{
			Name: "working-dir", Kind: command.KindPath, Help: "folder in which the tasks start, " +
				"on a disk that every executor has; default: on this machine the notebook's, on Spark and YARN each task's own",
		},
		{Name: "env", Kind: command.KindEnv, Repeat: true, Help: "environment variable of the tasks, for this run"},
	}
}

// start starts a run and returns once every task has entered the program.
func (inv *invocation) start(ctx context.Context) (result.Value, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	m.Hold()
	st, err := m.Reserved(ctx)
	if err != nil {
		return nil, m.Explain(err)
	}
	if why := st.Outdated(inv.session.Options.Version); why != "" {
		return nil, &result.ClusterError{Code: 69, Text: why}
	}
	req, err := inv.prepare(ctx, st)
	if err != nil {
		return nil, err
	}
	v := render.NewView(inv.out)
	run, err := inv.enter(ctx, m, req, v)
	if err != nil {
		return nil, err
	}
	if inv.Has("wait") {
		return inv.follow(ctx, m, &clusterpb.FollowRequest{Run: run.GetId(), Show: inv.Text("show"), FromStart: true}, v)
	}
	v.Show(true, func() render.Bundle { return entered(run, inv.session.Say) })
	return result.OfRun(m.Name, run), nil
}

// gitLimit is how long a start of a managed cluster waits for the state of the notebook's repository.
const gitLimit = 150 * time.Millisecond

// prepare returns the request of a start; an interrupt cancels it.
func (inv *invocation) prepare(ctx context.Context, st *clusterpb.ClusterStatus) (*clusterpb.StartRequest, error) {
	ctx, cancel := interruptible(ctx, inv.out)
	defer cancel()
	req, err := inv.startRequest(ctx, st.GetName(), st.GetRequest())
	if ctx.Err() != nil && err != nil {
		return nil, &result.Interrupted{Text: "nothing was started"}
	}
	return req, err
}

// startRequest returns the request of a start on the cluster of that name, reserved by r.
func (inv *invocation) startRequest(ctx context.Context, name string,
	reserved *clusterpb.ReserveRequest,
) (*clusterpb.StartRequest, error) {
	var err error
	req := &clusterpb.StartRequest{Again: inv.Has("again"), Replace: inv.Has("replace")}
	if req.Options, err = inv.optionsOfRun(ctx, reserved); err != nil {
		return nil, err
	}
	// Otherwise its driver is on this host, and asks git when the run has begun.
	if reserved.GetEngine()[cluster.EngineManaged] != "" {
		commit := make(chan *clusterpb.GitCommit, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, gitLimit)
			defer cancel()
			commit <- git.State(ctx, req.GetOptions().GetWorkingDir())
		}()
		defer func() { req.Git = <-commit }()
	}
	if !req.GetAgain() {
		req.Program, err = inv.program(ctx, reserved)
		return req, err
	}
	last := inv.session.Submission(name)
	if last == nil || last.Command == nil {
		return req, nil // the driver has the last program
	}
	// The current text: the cell or script may have been edited.
	was := *inv
	was.Command = last.Command
	req.Again = false
	req.Program, err = was.program(ctx, reserved)
	return req, err
}

// optionsOfRun returns the options of the run.
func (inv *invocation) optionsOfRun(ctx context.Context,
	reserved *clusterpb.ReserveRequest,
) (*clusterpb.RunOptions, error) {
	env, err := inv.environment(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := inv.existingDir(ctx)
	if err != nil {
		return nil, err
	}
	o := &clusterpb.RunOptions{
		Mode: "train", Epochs: 1, Env: env, Callback: !inv.Has("no-callback"), KerasPatch: !inv.Has("no-keras-patch"),
		Resume: inv.Text("resume"), MaxRestarts: int32(inv.Count("max-restarts", 0)),
		StepTimeoutMillis: inv.Millis("step-timeout", 0), RunTimeoutMillis: inv.Millis("run-timeout", 0),
		WorkingDir: dir, Fabric: inv.Text("fabric"),
	}
	if o.GetMaxRestarts() > 0 { // otherwise nothing restarts
		o.MaxLosses = int32(inv.Count("max-losses", 10))
	}
	o.StartIn, err = inv.startIn(o.GetWorkingDir(), reserved)
	return o, err
}

// startIn returns --working-dir as executors find it.
func (inv *invocation) startIn(notebook string, reserved *clusterpb.ReserveRequest) (string, error) {
	given := inv.Text("working-dir")
	engine, _ := inv.session.Options.Engines.Find(reserved.GetBackend())
	switch {
	case given == "":
		return "", nil
	case engine.OnThisHost:
		return Absolute(notebook, given), nil
	case !filepath.IsAbs(given):
		return "", command.Usagef(inv.Verb, "--working-dir %s: on %s it must be absolute, a folder that every executor has",
			given, reserved.GetBackend())
	case len(reserved.GetShip()) > 0:
		return "", command.Usagef(inv.Verb, "--working-dir: the files of --files lie in each task's own folder on %s; "+
			"give one of the two", reserved.GetBackend())
	}
	return filepath.Clean(given), nil
}

// enter starts the run and shows it in v until every task has entered the program.
func (inv *invocation) enter(ctx context.Context, m *session.Handle, req *clusterpb.StartRequest,
	v *render.View,
) (*clusterpb.RunStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.Client.Start(ctx, req)
	if err != nil {
		return nil, m.Explain(err)
	}
	inv.session.Remember(m.Name, inv.Command)
	updates, stop := session.Receive(stream.Recv)
	defer stop()
	defer cancel()
	var run *clusterpb.RunStatus
	broken := &breaker{session: inv.session, member: m, out: inv.out, batch: inv.oneRun}
	quiet := session.NewSilence(inv.session.Options.Patience)
	for {
		select {
		case <-quiet.Timer.C:
			quiet.Ask(ctx, m)
		case err := <-quiet.Answers:
			if run == nil && session.FateOf(err) == session.Silent {
				return nil, maySucceed(err)
			}
			quiet.Answered(inv.out, err)
		case <-inv.out.Interrupts():
			if err := broken.interrupt(run.GetId()); err != nil {
				return nil, err
			}
		case u := <-updates:
			quiet.Heard(inv.out)
			if errors.Is(u.Err, io.EOF) {
				return nil, m.CutShort()
			}
			if u.Err != nil {
				err := m.Explain(u.Err)
				if run != nil && (inv.oneRun || inv.Has("wait")) && session.FateOf(err) == session.Restarting {
					return run, nil // wait reports its outcome
				}
				return nil, err
			}
			for _, n := range u.Msg.GetNotes() {
				inv.out.Stderr(render.NoteText(n) + "\n")
			}
			run = u.Msg.GetRun()
			if f := u.Msg.GetFailure(); f != nil {
				run = proto.CloneOf(run)
				run.State = "failed"
				if !broken.batch { // which first shows the tasks' lines
					v.Show(true, func() render.Bundle { return render.Summary(run) })
				}
				return nil, broken.reason(&result.RunFailed{Failure: f, Run: run})
			}
			if u.Msg.GetEntered() {
				return run, broken.reason(nil)
			}
			v.Show(false, func() render.Bundle { return render.RunView(run) })
		}
	}
}

// maySucceed returns the error of a start whose driver has not answered: it may have the request.
func maySucceed(err error) error {
	silent, ok := errors.AsType[*result.ClusterError](err)
	if !ok {
		return err
	}
	told := *silent
	told.Text += "; the start was sent, and may take effect when it answers again"
	return &told
}

// entered shows the state after start.
func entered(run *clusterpb.RunStatus, say func(string) string) render.Bundle {
	line := fmt.Sprintf("run %d · %s · entered on %s · %s follows it", run.GetId(), run.GetProgram(),
		render.Plural(int64(len(run.GetTasks())), "task"), say("wait"))
	if render.Over(run.GetState()) || run.GetState() == "finished" || run.GetState() == "stopped" {
		line = render.RunTitle(run)
	}
	return render.Title(line).Faint("logs: " + rundir.Join(run.GetDir(), rundir.Lines))
}
