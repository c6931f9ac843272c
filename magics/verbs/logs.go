package verbs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var logsVerb = row{
	Verb: command.Verb{
		Name: "logs", Summary: "the tasks' lines", Magic: true, Shell: true, Now: true, Options: []command.Option{
			{Name: "lines", Short: "n", Kind: command.KindCount, Max: 10_000_000, Default: "100", Help: "the last N lines"},
			{
				Name: "follow", Short: "f", Kind: command.KindFlag,
				Help: "go on as lines come; an interrupt ends the following only",
			},
			{
				Name: "task", Kind: command.KindTask,
				Help: "one task's lines; a container of YARN's: what that wrote, container_…",
			},
			{Name: "grep", Kind: command.KindPattern, Help: "lines that match"},
			{Name: "since", Kind: command.KindSince, Help: "lines from then on: 10m, 14:30, 2026-01-02T15:04:05Z"},
			{Name: "raw", Kind: command.KindFlag, Help: "do not dim TensorFlow's harmless lines"},
			runOption, pastClusterOption, nowOption,
		}, Example: "logs -f --task worker:1",
		Long: "All lines go to standard output, also those that a task wrote to standard error. Also of a cluster that is " +
			"over. -c application_… shows what the containers of an application of YARN's wrote themselves: the agents, " +
			"a managed cluster's driver.",
	},
	run: (*invocation).logs, ownInterrupts: true,
}

const defaultLines = 100

// logs shows tasks' lines. With -f an interrupt only ends following. For an ended cluster it
// reads the lines that are left.
func (inv *invocation) logs(ctx context.Context) (result.Value, error) {
	req, err := inv.logsRequest()
	if err != nil {
		return nil, err
	}
	if name := inv.Text("cluster"); inv.isApplication(name) && inv.session.Options.History != nil {
		live := inv.session.Options.History.FindByApplication(name)
		if live == "" {
			return nil, inv.leaseLogs(ctx, name, inv.session.ClusterOfApplication(name), req)
		}
		inv.Means(live)
		req.Engine, req.Allocation = true, name
	}
	req.Engine = req.Engine || command.IsContainer(req.GetTask())
	if req.GetEngine() {
		if err := onlyTasks(inv); err != nil {
			return nil, err
		}
	}
	m, err := inv.session.Pick(ctx, inv.Command)
	if err == nil {
		if err = inv.streamLogs(ctx, m, req); !session.IsOver(err) || req.GetFollow() {
			return nil, err
		}
	}
	if p := inv.session.PastCluster(inv.Command, err); p != nil {
		return nil, inv.pastLogs(ctx, p, req)
	}
	return nil, err
}

// logsRequest returns the request of the command.
func (inv *invocation) logsRequest() (*clusterpb.LogsRequest, error) {
	req := &clusterpb.LogsRequest{
		Run: int32(inv.Count("run", 0)), Last: int32(inv.Count("lines", defaultLines)), Follow: inv.Has("follow"),
		Task: inv.Text("task"), Grep: inv.Text("grep"),
	}
	if given := inv.Text("since"); given != "" {
		at, err := command.ParseSince(given, time.Now())
		if err != nil {
			return nil, command.Usagef(inv.Verb, "--since: %v", err)
		}
		req.SinceUnixNano = at.UnixNano()
		if !inv.Has("lines") {
			req.Last = 0
		}
	}
	return req, nil
}

// streamLogs shows the lines that a cluster's driver sends.
func (inv *invocation) streamLogs(ctx context.Context, m *session.Handle, req *clusterpb.LogsRequest) error {
	stream := session.OpenStream(ctx, m, inv.out, req, clusterpb.ControlClient.Logs)
	defer stream.Close()
	p := inv.printer()
	p.Shows(cmp.Or(req.GetAllocation(), m.Name), req.GetRun())
	defer p.Close()
	written := 0
	sent := sentLines{next: map[string]uint64{}}
	for {
		select {
		case <-inv.out.Interrupts():
			return nil
		case u := <-stream.Updates:
			switch {
			case errors.Is(u.Err, io.EOF):
				if written == 0 && !req.GetFollow() {
					inv.out.Stdout(noLines(req) + "\n")
				}
				return nil
			case u.Err != nil && !req.GetFollow():
				return m.Explain(u.Err)
			case u.Err != nil:
				sent.resume(req)
				if err := stream.Reopen(u.Err); err != nil {
					return err
				}
				continue
			}
			stream.Heard()
			if gap := u.Msg.GetGap(); gap != "" {
				p.Gap(gap)
			}
			p.Heading(u.Msg.GetHeading())
			lines := sent.fresh(u.Msg)
			written += len(lines)
			if !req.GetFollow() {
				still(lines)
			}
			p.Lines(lines)
			p.Flush()
		}
	}
}

// sentLines is the position of logs -f in the lines of a run. The next driver continues there: by
// line number, because the clocks of executors differ and lines may have equal times.
type sentLines struct {
	run  int32             // 0: not known yet
	next map[string]uint64 // by task: number of the line after the last one sent
	kept bool              // all lines stored before the call have been sent
	skip map[string]uint64 // by task: lines below this number are sent a second time
}

// fresh returns the lines of a reply that have not been sent before.
func (s *sentLines) fresh(u *clusterpb.LinesReply) []*clusterpb.Line {
	if run := u.GetRun(); run != 0 && run != s.run { // after the driver's death another run may be the current one
		if s.run != 0 {
			clear(s.next)
			s.skip = nil
		}
		s.run, s.kept = run, false
	}
	if u.GetKeptSent() {
		s.kept = true
		for task, n := range u.GetPosition() {
			s.next[task] = max(s.next[task], n)
		}
	}
	var lines []*clusterpb.Line
	for _, l := range u.GetLines() {
		if l.GetSeq() >= s.skip[l.GetTask()] {
			lines = append(lines, l)
		}
		s.next[l.GetTask()] = max(s.next[l.GetTask()], l.GetSeq()+1)
	}
	return lines
}

// resume changes a request so that the next driver continues. If not all stored lines were sent,
// the driver sends them again, because --lines counts the lines of all tasks.
func (s *sentLines) resume(req *clusterpb.LogsRequest) {
	switch {
	case s.run == 0:
	case s.kept:
		req.AfterRun, req.After, req.Last = s.run, maps.Clone(s.next), 0
		s.skip = nil
	default:
		s.skip = maps.Clone(s.next)
	}
}

// still converts frames of progress bars to lines, for output that is not redrawn.
func still(lines []*clusterpb.Line) {
	for _, l := range lines {
		l.Carriage = false
	}
}

func noLines(req *clusterpb.LogsRequest) string {
	if req.GetGrep() != "" || req.GetTask() != "" || req.GetSinceUnixNano() > 0 {
		return "no lines match"
	}
	return "no lines yet"
}

// isApplication returns whether a name is an engine's application ID instead of a cluster's
// name.
func (inv *invocation) isApplication(name string) bool {
	_, ok := inv.session.Options.Engines.OfApplication(name)
	return ok
}

// requestOf returns a request with the engine of an ended cluster; without one, with the
// notebook's settings.
func (inv *invocation) requestOf(ctx context.Context, engine cluster.Engine,
	p *state.ClusterRecord,
) (*clusterpb.ReserveRequest, error) {
	if p != nil {
		return session.RequestOf(p), nil
	}
	req := &clusterpb.ReserveRequest{Backend: engine.Name, Engine: map[string]string{}}
	if engine.Hadoop {
		if err := inv.hadoop(ctx, req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// printer writes tasks' lines for logs: all to standard output, for pipes and filters; in a
// shell only complete lines.
func (inv *invocation) printer() *render.Printer {
	limit := lineBytes
	if inv.session.Options.Shell {
		limit = 0
	}
	p := render.NewPrinter(inv.out, inv.session.Say, limit)
	p.OneStream, p.Raw = true, inv.Has("raw")
	return p
}
