package verbs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

func runVerb(engines cluster.Engines) row {
	return row{
		Verb: command.Verb{
			Name: "run", Summary: "reserve, start, wait and shut down", Shell: true, Words: "PROGRAM [words]", Program: true,
			MaxWords: -1, Options: runOptions(engines), Example: "run --workers 2 train.py --epochs 3",
			Operand: command.OperandProgram, Check: checkTimeouts,
		},
		run: (*invocation).batch, ownInterrupts: true, configured: true,
	}
}

// runOptions returns the options of reserve and start, without duplicates.
func runOptions(engines cluster.Engines) []command.Option {
	options := reserveOptions(engines)
	for _, o := range startOptions() {
		if !slices.ContainsFunc(options, func(have command.Option) bool { return have.Name == o.Name }) &&
			o.Name != "again" && o.Name != "args" && o.Name != "wait" {
			options = append(options, o)
		}
	}
	return append(options, command.Option{
		Name: "detach", Kind: command.KindFlag,
		Help: "print the cluster's name and return once the program runs; with --managed once YARN has taken it",
	})
}

// batch implements the command line's run: reserve, start, wait, shut down.
func (inv *invocation) batch(ctx context.Context) (result.Value, error) {
	inv.oneRun = true
	req, err := inv.request(ctx)
	if err != nil {
		return nil, err
	}
	req.OneRun = true
	start, err := inv.startRequest(ctx, "", req) // a missing program is an error before the reservation
	if err != nil {
		return nil, err
	}
	detach := inv.Has("detach")
	progress := *inv
	if detach {
		progress.out = quiet{inv.out}
	}
	progress.advise(req)
	if detach && req.GetEngine()[cluster.EngineManaged] != "" && proto.Size(start) <= mostSubmitted {
		req.Begin = start
	}
	m, err := inv.session.Launch(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.Begin != nil {
		return inv.submit(ctx, m, req)
	}
	value, err := progress.batchRun(ctx, m, req, start)
	if detach && err == nil {
		inv.out.Stdout(m.Name + "\n")
		return value, nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.ShutdownTimeout)
	defer cancel()
	if inv.session.Find(m.Name) == nil {
		return value, err // the reservation failed and was released
	}
	rerr := inv.session.Release(end, quiet{inv.out}, m,
		&clusterpb.ShutdownRequest{Force: true, Reason: "the batch run is over"})
	return value, errors.Join(released(err), rerr)
}

// released leaves out the steps of a failure's remedy that need the executors, which have been
// released.
func released(err error) error {
	var failed *result.RunFailed
	if !errors.As(err, &failed) || failed.Run == nil || !strings.Contains(failed.Failure.GetRemedy(), "%tfcluster") {
		return err
	}
	var steps []string
	for step := range strings.SplitSeq(failed.Failure.GetRemedy(), "; ") {
		step, _, _ = strings.Cut(step, " and run %tfcluster")
		if !strings.Contains(step, "%tfcluster") {
			steps = append(steps, step)
		}
	}
	failure := proto.CloneOf(failed.Failure)
	failure.Remedy = strings.Join(append(steps, "run it again", "the failed run's files are in "+failed.Run.GetDir()),
		"; ")
	return &result.RunFailed{Failure: failure, Run: failed.Run}
}

func (inv *invocation) batchRun(ctx context.Context, m *session.Handle, req *clusterpb.ReserveRequest,
	start *clusterpb.StartRequest,
) (result.Value, error) {
	if _, err := inv.awaitReady(ctx, m, req, true); err != nil {
		return nil, err
	}
	m = cmp.Or(inv.session.Find(m.Name), m) // another driver may have completed it
	v := render.NewView(inv.out)
	run, err := inv.enter(ctx, m, start, v)
	follow := func(run *clusterpb.RunStatus) (result.Value, error) {
		return inv.follow(ctx, m, &clusterpb.FollowRequest{Run: run.GetId(), Show: inv.Text("show"), FromStart: true}, v)
	}
	var failed *result.RunFailed
	if errors.As(err, &failed) && failed.Run != nil && !inv.Has("detach") {
		_, _ = follow(failed.Run) // it ended before all tasks had entered: only its lines are shown
	}
	if err != nil {
		return nil, err
	}
	if !inv.Has("detach") {
		value, err := follow(run)
		return value, inv.inShell(value, err)
	}
	if _, err := m.Client.Detach(ctx, &clusterpb.DetachRequest{}); err != nil && render.Active(run) {
		return nil, m.Explain(err)
	}
	return result.OfRun(m.Name, run), nil
}

// quiet is an Output that shows errors only.
type quiet struct{ render.Output }

// Stdout implements render.Output.
func (quiet) Stdout(string) {}

// Display implements render.Output.
func (quiet) Display(string, map[string]any, map[string]any) {}

// Update implements render.Output.
func (quiet) Update(string, map[string]any, map[string]any) {}
