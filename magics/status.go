package magics

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
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

// glance is a live cluster in a few words, "" when its driver is slow.
func (s *Session) glance(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	m := s.member(name)
	client := clusterpb.ControlClient(nil)
	if m != nil {
		client = m.client
	} else {
		c, err := s.opt.Connector.Dial(ctx, name)
		if err != nil {
			return "does not answer"
		}
		defer closeClient(c)
		client = c
	}
	st, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return "does not answer"
	}
	return clusterWords(st)
}

// clusterWords is a cluster's state in a few words: "run 3 is running 00:12:31".
func clusterWords(st *clusterpb.ClusterStatus) string {
	r := st.GetRun()
	if r == nil {
		return st.GetState() + ", no run yet"
	}
	word := fmt.Sprintf("run %d %s", r.GetId(), r.GetState())
	switch r.GetState() {
	case "running", "starting", "stopping":
		word = fmt.Sprintf("run %d is %s %s", r.GetId(), r.GetState(), clock(r.GetSeconds()))
	case "failed":
		if s := r.GetFailure().GetSummary(); s != "" {
			word += ": " + s
		}
	}
	if st.GetDetached() {
		word += ", detached"
	}
	return word
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
