package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

// FabricView shows the executors' devices, the settings of their tasks with the reasons, and what NCCL
// says that it uses.
func FabricView(name string, r *clusterpb.FabricReply) Bundle {
	b := Title(fmt.Sprintf("network of cluster %s: %s", name, cmp.Or(r.GetSummary(), "no executor is here yet")))
	if mode := r.GetMode(); mode != string(fabric.Auto) {
		b = b.Faint("as asked for by --fabric " + mode)
	}
	if len(r.GetExecutors()) == 0 {
		return b
	}
	b = b.Table(deviceRows(r.GetExecutors())).Table(settingRows(r.GetExecutors()))
	if t := chosenRows(r.GetExecutors()); len(t.Rows) > 0 {
		b = b.Line("what NCCL says that it uses:").Table(t)
	} else {
		b = b.Faint("start --env NCCL_DEBUG=INFO shows here what NCCL really uses")
	}
	if t := r.GetTensorflow(); t != "" {
		b = b.Faint(t)
	}
	return b
}

// mostExecutors is how many executors the tables show; --json has all.
const mostExecutors = 40

func deviceRows(executors []*clusterpb.ExecutorFabric) Table {
	t := Table{Head: []string{"task", "host", "interface", "port", "link", "rate", "used", "place", "NCCL", "remark"}}
	for _, x := range executors[:min(len(executors), mostExecutors)] {
		f := x.GetFabric()
		first := []string{x.GetTask(), x.GetHost(), interfaceText(f), x.GetNccl()}
		if len(f.GetPorts()) == 0 {
			t.Rows = append(t.Rows, Row(first[0], first[1], first[2], "", "", "", "", "", first[3], ""))
		}
		for _, p := range f.GetPorts() {
			port := fmt.Sprintf("%s:%d", p.GetDevice(), p.GetNumber())
			used := ""
			if slices.Contains(x.GetPorts(), port) {
				used = "yes"
			}
			remark := Cell{Text: p.GetProblem(), Tone: ToneFaint}
			if p.GetRemedy() != "" {
				remark.Text += ": " + p.GetRemedy()
			}
			row := Row(first[0], first[1], first[2], port, p.GetLink(), fabric.RateText(p.GetRate()), used,
				p.GetNear(), first[3])
			t.Rows = append(t.Rows, append(row, remark))
			first = []string{"", "", "", ""}
		}
	}
	if n := len(executors) - mostExecutors; n > 0 {
		t.Rows = append(t.Rows, Row("…", fmt.Sprintf("%d more", n), "", "", "", "", "", "", "", ""))
	}
	return t.Drop()
}

func interfaceText(f *clusterpb.Fabric) string {
	switch {
	case f.GetInterface().GetName() != "":
		return f.GetInterface().GetName() + " " + f.GetAddress()
	case f.GetAddress() != "":
		return "none has " + f.GetAddress()
	}
	return "not known"
}

// settingRows has a row for each setting; tasks with the same value and reason share one.
func settingRows(executors []*clusterpb.ExecutorFabric) Table {
	t := Table{Head: []string{"variable", "value", "set by", "reason", "tasks"}}
	type key struct{ name, value, source, reason string }
	tasks := map[key][]string{}
	var order []key
	for _, x := range executors {
		for _, s := range x.GetSettings() {
			reason := strings.Replace(s.GetReason(), "the address "+x.GetFabric().GetAddress()+
				" in", "the executor's address in", 1)
			k := key{s.GetName(), s.GetValue(), cmp.Or(s.GetSource(), "tfcluster"), reason}
			if tasks[k] == nil {
				order = append(order, k)
			}
			tasks[k] = append(tasks[k], x.GetTask())
		}
	}
	for _, k := range order {
		whose := ShortList(tasks[k], 4)
		if len(tasks[k]) == len(executors) {
			whose = "all"
		}
		t.Rows = append(t.Rows, Row(k.name, k.value, k.source, k.reason, whose))
	}
	return t.Drop()
}

func chosenRows(executors []*clusterpb.ExecutorFabric) Table {
	t := Table{Head: []string{"task", "NCCL", "network", "devices", "channels"}}
	for _, x := range executors {
		if c := x.GetChosen(); c != nil {
			t.Rows = append(t.Rows, Row(x.GetTask(), c.GetVersion(), c.GetNetwork(), strings.Join(c.GetDevices(), " "),
				strings.Join(c.GetPaths(), " ")))
		}
	}
	return t.Drop()
}
