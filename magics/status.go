package magics

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// status shows a cluster, one of its runs, or every cluster.
func (inv *invocation) status(ctx context.Context) (Value, error) {
	if inv.Has("all") {
		return nil, inv.statusAll(ctx)
	}
	m, err := inv.session.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	if n := int32(inv.Count("run", 0)); n > 0 {
		return nil, inv.statusRun(ctx, m, n)
	}
	st, err := m.status(ctx)
	if err != nil {
		return nil, answered(err)
	}
	if inv.Has("json") {
		for name := range st.GetRequest().GetEnv() {
			st.Request.Env[name] = "" // it may be a secret, and a notebook keeps what it shows
		}
		return nil, printProto(inv.out, st)
	}
	display(inv.out, clusterView(st, inv.session.say))
	return nil, nil
}

func (inv *invocation) statusRun(ctx context.Context, m *member, n int32) error {
	runs, err := m.history(ctx, true)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.GetId() != n {
			continue
		}
		if inv.Has("json") {
			return printProto(inv.out, r)
		}
		b := runView(r)
		if t := taskRows(r, true); r.GetState() == "finished" && len(t.rows) > 0 {
			b.text += t.plain()
			b.html += t.html()
		}
		display(inv.out, b)
		return nil
	}
	return usagef(inv.Verb, "cluster %s has no run %d: history lists its %s", m.name, n, plural(int64(len(runs)), "run"))
}

func (inv *invocation) statusAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	infos, err := inv.session.opt.Connector.List(ctx)
	if err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	for i := range infos {
		if infos[i].Live && infos[i].Note == "" {
			infos[i].Note = inv.session.glance(ctx, infos[i].Name)
		}
	}
	if inv.Has("json") {
		return printJSON(inv.out, infos)
	}
	display(inv.out, clustersView(infos, inv.session.lastName()))
	return nil
}

func printProto(out Output, m proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode JSON: %w", err)
	}
	return printJSON(out, json.RawMessage(text))
}

func printJSON(out Output, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode JSON: %w", err)
	}
	out.Stdout(string(text) + "\n")
	return nil
}

// clustersView is the answer of status --all.
func clustersView(infos []ClusterInfo, mine string) bundle {
	if len(infos) == 0 {
		return bundle{text: "no clusters of yours on this host\n", html: "<div>no clusters of yours on this host</div>"}
	}
	t := table{head: []string{"", "cluster", "backend", "driver", "since", "notebook", "note"}}
	for _, i := range infos {
		mark, live := "", cell{"alive", toneGood}
		if i.Name == mine {
			mark = "*"
		}
		if !i.Live {
			live = cell{"dead", toneBad}
		}
		since := ""
		if !i.Since.IsZero() {
			since = i.Since.Format("2006-01-02 15:04")
		}
		t.rows = append(t.rows, []cell{{text: mark}, {text: i.Name}, {text: i.Backend}, live, {text: since}, {text: shorten(i.Owner, 28)}, {text: i.Note}})
	}
	return t.drop().bundle()
}
