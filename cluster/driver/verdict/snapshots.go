package verdict

import (
	"maps"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Collector assigns the answers of agents to the rounds in which they were asked. One goroutine
// at a time uses it.
type Collector struct {
	last int32
	open map[int32]*Round
}

// NewCollector returns a Collector without rounds.
func NewCollector() *Collector { return &Collector{open: map[int32]*Round{}} }

// Round is one question to the agents of some tasks.
type Round struct {
	// Number is what the agents return with their answers; it is above 0.
	Number int32
	// Replies has one reply for each task: its snapshot, or why there is none. It is closed after
	// the last one. It never blocks the Collector.
	Replies chan *clusterpb.StacksReply

	waiting map[string]bool // tasks that have not answered
}

// Begin opens a round of these tasks, whose names differ.
func (c *Collector) Begin(tasks []string) *Round {
	c.last++
	r := &Round{Number: c.last, Replies: make(chan *clusterpb.StacksReply, len(tasks)), waiting: map[string]bool{}}
	for _, t := range tasks {
		r.waiting[t] = true
	}
	c.open[r.Number] = r
	c.settle(r)
	return r
}

// Waits returns whether a task of the round has no reply yet. Only the Collector's goroutine calls
// it.
func (r *Round) Waits(task string) bool { return r.waiting[task] }

// Taken adds an agent's answer. Answers of rounds that are over, and of tasks that were not
// asked, are dropped.
func (c *Collector) Taken(a *clusterpb.SnapshotTaken) {
	s := a.GetSnapshot()
	reply := &clusterpb.StacksReply{Run: s.GetRun(), Snapshots: []*clusterpb.Snapshot{s}}
	if s.GetPid() == 0 {
		reply = &clusterpb.StacksReply{
			Run: s.GetRun(), Missing: []*clusterpb.MissingSnapshot{{Task: s.GetTask(), Host: s.GetHost(), Reason: s.GetError()}},
		}
	}
	if r := c.open[a.GetRound()]; r != nil {
		c.reply(r, s.GetTask(), reply)
	}
}

// Missing says in every open round why a task cannot answer.
func (c *Collector) Missing(m *clusterpb.MissingSnapshot) {
	for _, r := range c.open {
		c.missing(r, m)
	}
}

// End ends a round: why returns the reason for each task that has not answered.
func (c *Collector) End(r *Round, why func(task string) *clusterpb.MissingSnapshot) {
	for _, task := range slices.Sorted(maps.Keys(r.waiting)) {
		c.missing(r, why(task))
	}
}

func (c *Collector) missing(r *Round, m *clusterpb.MissingSnapshot) {
	c.reply(r, m.GetTask(), &clusterpb.StacksReply{Missing: []*clusterpb.MissingSnapshot{m}})
}

func (c *Collector) reply(r *Round, task string, reply *clusterpb.StacksReply) {
	if !r.waiting[task] {
		return
	}
	delete(r.waiting, task)
	r.Replies <- reply
	c.settle(r)
}

// settle closes a round in which every task has a reply.
func (c *Collector) settle(r *Round) {
	if len(r.waiting) == 0 {
		delete(c.open, r.Number)
		close(r.Replies)
	}
}
