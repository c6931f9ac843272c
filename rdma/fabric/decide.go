package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Mode is what the user asks for.
type Mode string

// Modes of start --fabric.
const (
	Auto Mode = "auto" // RDMA if every executor can
	TCP  Mode = "tcp"  // no RDMA
	RDMA Mode = "rdma" // RDMA, otherwise the start is refused
)

// Rank is an executor with what is known about its task.
type Rank struct {
	Task, Host string
	// Compared says that the task exchanges data with the others by collective calls, so all of these need the same kind
	// of link. Parameter servers and evaluators do not.
	Compared bool
	NCCL     string     // version of its package; "": not known
	Given    []Variable // the user's settings for the task; those before win
	Executor
}

// Decision is the network that the executors use, and each one's settings.
type Decision struct {
	Link    Link   // Ethernet: TCP
	Why     string // why RDMA is not used although an executor has a device for it; ""
	Summary string // one line for people: "RoCE v2 on mlx5_0:1, 100 Gb/s, on all 4 executors"
	// TensorFlow says what MultiWorkerMirroredStrategy uses; "": it does not depend on the network.
	TensorFlow string
	Ranks      []Chosen // in the order of the arguments
}

// Chosen is the network of one executor.
type Chosen struct {
	Ports      []string // that NCCL is to use; none for TCP
	Settings   []Setting
	Collective *Collective // nil: TCP
}

// Setting is an environment variable of a task.
type Setting struct {
	Name, Value string
	Reason      string
	Source      string // who set it; "": Decide
}

// Decide chooses the network of executors that exchange data. If mode is RDMA and they cannot use it, it returns an
// error of one line, and the decision for TCP.
func Decide(ranks []Rank, mode Mode) (*Decision, error) {
	var compared []*candidate
	all := make([]*candidate, len(ranks))
	for i := range ranks {
		all[i] = newCandidate(&ranks[i], mode)
		if ranks[i].Compared {
			compared = append(compared, all[i])
		}
	}
	d := &Decision{Link: Ethernet, Ranks: make([]Chosen, len(ranks))}
	var err error
	if mode == TCP {
		d.Why = "--fabric tcp"
	} else {
		d.Link, d.Why = commonLink(compared)
	}
	if mode == RDMA && d.Link == Ethernet {
		err = fmt.Errorf("--fabric rdma: %s; --fabric auto uses TCP then", cmp.Or(d.Why, "no executor has an RDMA device"))
	}
	if d.Link != Ethernet {
		choosePorts(compared, d.Link)
	}
	for i, c := range all {
		d.Ranks[i].Settings = c.settings(d.Link, mode, d.Why) // may drop ports
		for _, p := range c.chosen {
			d.Ranks[i].Ports = append(d.Ranks[i].Ports, p.String())
		}
		d.Ranks[i].Collective = c.collective(d.Link)
	}
	d.Summary, d.TensorFlow = summary(d, compared, len(all)), tensorFlow(compared)
	return d, err
}

// candidate is an executor for which ports are chosen.
type candidate struct {
	*Rank
	given   []Variable     // every setting that is not Decide's
	usable  []*Port        // that can be used, and that the user has not excluded
	chosen  []*Port        // of usable
	dropped []droppedPort  // that can be used, and are not chosen
	subnets []netip.Prefix // of RoCE ports, that all executors share
}

// droppedPort is a port that is not chosen although it can be used.
type droppedPort struct {
	*Port
	why string
}

// String returns the port with the reason.
func (p droppedPort) String() string { return p.Port.String() + ": " + p.why }

func newCandidate(r *Rank, mode Mode) *candidate {
	c := &candidate{Rank: r}
	for _, v := range slices.Concat(r.Given, r.Own) {
		if _, hidden := c.find(v.Name); concerns(v.Name) && !hidden {
			c.given = append(c.given, v)
		}
	}
	hca, filtered := c.find("NCCL_IB_HCA")
	for i := range r.Ports {
		p := &r.Ports[i]
		switch {
		case p.Problem != "":
		case filtered && !selects(hca.Value, p): // listed with the setting
		case p.Software && mode != RDMA && !filtered:
			c.drop(p, "it is emulated in software, which is slower than TCP")
		default:
			c.usable = append(c.usable, p)
		}
	}
	return c
}

// find returns a setting that is not Decide's.
func (c *candidate) find(name string) (Variable, bool) {
	i := slices.IndexFunc(c.given, func(v Variable) bool { return v.Name == name })
	if i < 0 {
		return Variable{}, false
	}
	return c.given[i], true
}

// disabled returns the user's setting that keeps NCCL from using RDMA.
func (c *candidate) disabled() (Variable, bool) {
	if v, ok := c.find("NCCL_IB_DISABLE"); ok && v.Value != "0" && v.Value != "" {
		return v, true
	}
	v, ok := c.find("NCCL_NET")
	return v, ok && strings.EqualFold(v.Value, "Socket")
}

// commonLink returns the kind of link that all executors have, Ethernet with the reason if there is none. Without any
// RDMA device there is no reason.
func commonLink(compared []*candidate) (Link, string) {
	for _, c := range compared {
		if v, ok := c.disabled(); ok {
			return Ethernet, fmt.Sprintf("%s sets %s=%s for %s", v.Source, v.Name, v.Value, c.Task)
		}
	}
	for _, link := range verbs {
		if len(compared) > 0 && !slices.ContainsFunc(compared, func(c *candidate) bool { return !c.has(link) }) {
			return link, ""
		}
	}
	if !slices.ContainsFunc(compared, func(c *candidate) bool { return len(c.Ports) > 0 }) {
		return Ethernet, ""
	}
	var without []string
	for _, c := range compared {
		if len(c.usable) == 0 {
			without = append(without, fmt.Sprintf("%s on %s: %s", c.Task, c.Host, c.obstacle()))
		}
	}
	if len(without) > 0 {
		return Ethernet, without[0] + others(len(without)-1)
	}
	first := compared[0]
	i := slices.IndexFunc(compared, func(c *candidate) bool { return !c.has(first.usable[0].Link) })
	if i < 0 {
		i = len(compared) - 1
	}
	return Ethernet, fmt.Sprintf("the executors have no kind of link in common: %s has %s, %s has %s",
		first.Task, first.links(), compared[i].Task, compared[i].links())
}

// others returns the note that more executors are alike.
func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 more executor cannot use it either"
	}
	return fmt.Sprintf("; %d more executors cannot use it either", n)
}

func (c *candidate) has(link Link) bool {
	return slices.ContainsFunc(c.usable, func(p *Port) bool { return p.has(link) })
}

// links returns the kinds of links that an executor can use, for people.
func (c *candidate) links() string {
	var found []string
	for _, link := range verbs {
		if c.has(link) {
			found = append(found, string(link))
		}
	}
	return strings.Join(found, " and ")
}

// obstacle returns why an executor cannot use RDMA: the problem of its first active port, otherwise of its first port.
func (c *candidate) obstacle() string {
	if len(c.Ports) == 0 {
		return "it has no RDMA device"
	}
	for i := range c.Ports {
		if p := &c.Ports[i]; p.State == stateActive && p.Problem != "" {
			return p.String() + ": " + p.Problem
		}
	}
	if len(c.dropped) > 0 {
		return c.dropped[0].String()
	}
	if p := &c.Ports[0]; p.Problem != "" {
		return p.String() + ": " + p.Problem
	}
	return "NCCL_IB_HCA selects no port that can be used"
}

// summary returns the decision in one line.
func summary(d *Decision, compared []*candidate, all int) string {
	if len(compared) == 0 {
		return ""
	}
	var names, rates []string
	for _, c := range compared {
		name, rate := c.network(d.Link)
		names, rates = append(names, name), append(rates, rate)
	}
	text := string(d.Link)
	if name := oneOf(names); name != "" {
		text += " on " + name
	}
	if rate := oneOf(rates); rate != "" {
		text += ", " + rate
	}
	switch {
	case all == 1:
	case len(compared) == all:
		text += fmt.Sprintf(", on all %d executors", all)
	default:
		text += fmt.Sprintf(", on the %d executors that train", len(compared))
	}
	if d.Why != "" {
		text += "; no RDMA: " + d.Why
	}
	return text
}

// network returns what an executor uses, and its rate.
func (c *candidate) network(link Link) (name, rate string) {
	if link == Ethernet {
		return c.Interface.Name, RateText(c.Interface.Rate)
	}
	if len(c.chosen) == 0 {
		return "", ""
	}
	return more(c.chosen[0].String(), len(c.chosen)), RateText(c.chosen[0].Rate)
}

// oneOf returns the element of a list in which all are equal; "" for others.
func oneOf(all []string) string {
	if slices.ContainsFunc(all, func(s string) bool { return s != all[0] }) {
		return ""
	}
	return all[0]
}

// tensorFlow returns what MultiWorkerMirroredStrategy uses. TensorFlow takes NCCL only if the program asks for it
// (collective_all_reduce_strategy.py, collective_param_resolver_local.cc), and has no other transport than gRPC.
func tensorFlow(compared []*candidate) string {
	if len(compared) < 2 {
		return ""
	}
	if slices.ContainsFunc(compared, func(c *candidate) bool { return c.GPUs == 0 }) {
		return "MultiWorkerMirroredStrategy uses its ring over gRPC: NCCL needs GPUs on every worker"
	}
	return "MultiWorkerMirroredStrategy uses NCCL only if its communication_options have implementation=NCCL, " +
		"otherwise its ring over gRPC"
}
