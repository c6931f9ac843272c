package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

var statusVerb = row{
	Verb: command.Verb{
		Name: "status", Summary: "the cluster, its executors and its run", Magic: true, Shell: true, Now: true,
		Options: []command.Option{
			{Name: "all", Kind: command.KindFlag, Help: "every cluster of yours on this host, live or dead"}, {
				Name: "watch",
				Kind: command.KindFlag,
				Help: "update it in place until the cluster is over; an interrupt ends the watching only",
			}, {Name: "fabric", Kind: command.KindFlag, Help: "the executors' network: RDMA devices, the settings of NCCL " +
				"and gloo with their reasons, and what NCCL really uses"}, runOption, jsonOption, clusterOption, nowOption,
		}, Example: "status",
	},
	run: (*invocation).status,
}

// status shows a cluster, one of its runs, or all clusters.
func (inv *invocation) status(ctx context.Context) (result.Value, error) {
	if inv.Has("fabric") {
		return inv.fabricStatus(ctx)
	}
	if inv.Has("all") {
		return inv.statusAll(ctx)
	}
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	if inv.Has("watch") {
		return nil, inv.watchStatus(ctx, m)
	}
	if n := int32(inv.Count("run", 0)); n > 0 {
		return inv.statusRun(ctx, m, n)
	}
	st, err := m.Status(ctx)
	if err != nil {
		return nil, m.Explain(err)
	}
	hideSecrets(st.GetRequest())
	data, err := clusterpb.ToJSON(st, true)
	if err != nil {
		return nil, err
	}
	return inv.answer(data, data, func() render.Bundle { return render.ClusterView(st, inv.session.Say) })
}

// watchStatus updates the view of a cluster in place until it is over or the cell is interrupted.
func (inv *invocation) watchStatus(ctx context.Context, m *session.Handle) error {
	for _, other := range []string{"run", "json"} {
		if inv.Has(other) {
			return command.Usagef(inv.Verb, "--watch and --%s exclude each other: give one of them", other)
		}
	}
	stream := session.OpenStream(ctx, m, inv.out, &clusterpb.WatchRequest{}, clusterpb.ControlClient.Watch)
	defer stream.Close()
	view := render.NewView(inv.out)
	for {
		var u session.Received[*clusterpb.ClusterStatus]
		select {
		case <-ctx.Done(): // interrupted
			return nil
		case u = <-stream.Updates:
		}
		switch {
		case errors.Is(u.Err, io.EOF), u.Err != nil && ctx.Err() != nil:
			return nil // its last status has been shown
		case u.Err != nil:
			if err := stream.Reopen(u.Err); err != nil {
				return err
			}
			continue
		}
		stream.Heard()
		hideSecrets(u.Msg.GetRequest())
		view.Show(true, func() render.Bundle { return render.ClusterView(u.Msg, inv.session.Say) })
	}
}

// hideSecrets removes the values of variables and of the engine's own settings from a request:
// they may be secrets, and a notebook stores its output.
func hideSecrets(r *clusterpb.ReserveRequest) {
	for _, values := range []map[string]string{r.GetEnv(), r.GetBegin().GetOptions().GetEnv()} {
		for name := range values {
			values[name] = ""
		}
	}
	for key := range r.GetEngine() {
		if strings.HasPrefix(key, cluster.EngineConf) {
			r.Engine[key] = ""
		}
	}
}

// answer prints data as JSON with --json, otherwise the view, and returns data.
func (inv *invocation) answer(printed, data any, view func() render.Bundle) (result.Value, error) {
	if inv.Has("json") {
		return nil, printJSON(inv.out, printed)
	}
	render.Display(inv.out, view())
	return &result.Answer{Data: data}, nil
}

func (inv *invocation) statusRun(ctx context.Context, m *session.Handle, n int32) (result.Value, error) {
	runs, err := m.History(ctx, true)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.GetId() != n {
			continue
		}
		text, err := clusterpb.ToJSON(r, true)
		if err != nil {
			return nil, err
		}
		b := render.RunView(r)
		if t := render.TaskRows(r, true); r.GetState() == "finished" && len(t.Rows) > 0 {
			b = b.Table(t)
		}
		return inv.answer(text, result.OfRun(m.Name, r), func() render.Bundle { return b })
	}
	return nil, command.Usagef(inv.Verb, "cluster %s has no run %d; %s lists its %s", m.Name, n,
		inv.session.Say("history -c "+m.Name), render.Plural(int64(len(runs)), "run"))
}

func (inv *invocation) statusAll(ctx context.Context) (result.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, session.AnswerTimeout)
	defer cancel()
	infos, err := inv.session.Options.Connector.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range infos {
		if infos[i].Live && infos[i].Note == "" {
			infos[i].Note = inv.session.ShortStatus(ctx, infos[i].Name)
		}
	}
	return inv.answer(infos, infos, func() render.Bundle { return clustersView(infos, inv.session.LastName()) })
}

func printJSON(out render.Output, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return errtext.Fault("encode the answer as JSON: %w", err)
	}
	out.Stdout(string(text) + "\n")
	return nil
}

// clustersView shows the output of status --all.
func clustersView(infos []session.ClusterInfo, mine string) render.Bundle {
	if len(infos) == 0 {
		return render.Line("no clusters of yours on this host")
	}
	t := render.Table{Head: []string{"", "cluster", "backend", "driver", "since", "notebook", "note"}}
	for _, i := range infos {
		mark, live := "", render.Cell{Text: "alive", Tone: render.ToneGood}
		if i.Name == mine {
			mark = "*"
		}
		if !i.Live {
			live = render.Cell{Text: "dead", Tone: render.ToneBad}
		}
		since := ""
		if !i.Since.IsZero() {
			since = i.Since.Format("2006-01-02 15:04")
		}
		t.Rows = append(t.Rows, []render.Cell{
			{Text: mark}, {Text: i.Name}, {Text: i.Backend}, live, {Text: since}, {Text: command.Shorten(i.Owner, 28)}, {
				Text: i.Note,
			},
		})
	}
	return t.Drop().Bundle()
}

// fabricStatus shows the network of a cluster's executors.
func (inv *invocation) fabricStatus(ctx context.Context) (result.Value, error) {
	for _, other := range []string{"all", "watch", "run"} {
		if inv.Has(other) {
			return nil, command.Usagef(inv.Verb, "--fabric and --%s exclude each other: give one of them", other)
		}
	}
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	r, err := session.Ask(ctx, m, m.Client.Fabric, &clusterpb.FabricRequest{})
	if err != nil {
		return nil, err
	}
	data, err := clusterpb.ToJSON(r, true)
	if err != nil {
		return nil, err
	}
	return inv.answer(data, data, func() render.Bundle { return render.FabricView(m.Name, r) })
}

// findNetwork describes this machine's RDMA devices for doctor.
func findNetwork() finding {
	x := fabric.Detect(fabric.ThisHost("/", "", nil))
	return networkFinding(&x)
}

// networkFinding reports active ports that cannot be used as missing something; one that is down is no fault.
func networkFinding(x *fabric.Executor) finding {
	f := finding{what: "RDMA", found: "no device: tasks of several hosts use TCP"}
	var found []string
	for i := range x.Ports {
		p := &x.Ports[i]
		text := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", p, p.Link, fabric.RateText(p.Rate))), " ")
		if p.Problem != "" {
			text += " (" + p.Problem + ")"
		}
		found = append(found, text)
		f.remedy = cmp.Or(f.remedy, p.Remedy)
	}
	if len(found) > 0 {
		f.found = render.ShortList(found, 4)
	}
	return f
}
