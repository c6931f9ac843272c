package dispatch

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/feed"
)

// session is one feed that is on. Its fields are guarded by the Dispatch's mu.
type session struct {
	id      int64
	key     string
	run     Run
	request *clusterpb.FeedRequest
	feed    *feed.Feed
	holders map[string]*holder // by task
	lost    bool               // the feed failed because a holder ended
	hurt    bool               // a holder ended, or the feed failed because a program left: the run may end or start again
	source  bool               // the feed failed because its source did
	left    map[string]bool    // tasks whose programs read no more
	rate    rate
	route   route
}

// route is the way of producers on hosts without a holder to the feed.
type route struct {
	name string               // in their certificate
	open *clusterpb.FeedRoute // nil: they cannot
}

// newSession begins a feed and orders the holders to begin it. Caller holds mu.
func (d *Dispatch) newSession(request *clusterpb.FeedRequest, run Run, holders map[string]*holder) *session {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	d.feeds++
	s := &session{
		id: d.feeds, key: hex.EncodeToString(random), run: run, request: request, holders: holders,
		left: map[string]bool{}, rate: rate{since: time.Now()}, route: route{name: routeName()},
	}
	var tasks []string
	for task, h := range holders {
		tasks = append(tasks, task)
		h.mode = request.GetMode()
		h.order(s.beginOrder())
	}
	policy := policies[request.GetUneven()]
	if request.GetMode() == "inference" {
		policy = feed.Stay
	}
	s.feed = feed.New(
		feed.Config{ID: s.id, Epochs: request.GetEpochs(), Uneven: policy, More: request.GetMore(), Tasks: tasks})
	d.on = s
	return s
}

// beginOrder returns the order that begins the feed at a holder.
func (s *session) beginOrder() *clusterpb.HolderOrder {
	return &clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Begin{Begin: &clusterpb.FeedBegin{Feed: s.id, Key: s.key, Plan: s.request.GetPlan()}},
	}
}

// policies are the values of FeedRequest's uneven.
var policies = map[string]feed.Uneven{"": feed.Drop, "drop": feed.Drop, "pad": feed.Pad, "spread": feed.Spread}

// open returns where producers find the holders.
func (s *session) open() *clusterpb.FeedOpen {
	o := &clusterpb.FeedOpen{Feed: s.id, Key: s.key, Run: s.run.ID, Route: s.route.open}
	for _, task := range s.run.Tasks {
		if h := s.holders[task.Name]; h != nil {
			o.Holders = append(o.Holders,
				&clusterpb.FeedHolder{Task: task.Name, Host: h.hello.GetHost(), Socket: h.hello.GetSocket()})
		}
	}
	return o
}

// take applies the message of a task's holder.
func (s *session) take(task string, m *clusterpb.HolderMessage) {
	if m.GetLeft() == nil {
		s.send(s.feed.Step(task, m))
	} else if m.GetLeft().GetFeed() == s.id {
		s.hurt = s.departs(task, func() []feed.Order { return s.feed.Step(task, m) }) || s.hurt
	}
}

// sourceFailed applies the client's report that its source has failed.
func (s *session) sourceFailed(reason string) {
	s.source = s.source || !s.feed.Progress().Over
	s.send(s.feed.SourceFailed(reason))
}

// gone records that a holder is lost. If the feed fails by it and the run ends, too, the run's reason
// is the better one.
func (s *session) gone(task string) {
	s.lost = s.departs(task, func() []feed.Order { return s.feed.Lost(task) }) || s.lost
	s.hurt = true
}

// departs records that a task reads no more, and reports whether the feed fails by that.
func (s *session) departs(task string, step func() []feed.Order) bool {
	s.left[task] = true
	before := s.feed.Progress().Fault
	s.send(step())
	return before == "" && s.feed.Progress().Fault != ""
}

// send queues orders for their holders.
func (s *session) send(orders []feed.Order) {
	for _, o := range orders {
		h := s.holders[o.Holder]
		if over := o.GetOver(); over != nil && !over.GetMore() {
			h.over = true
		}
		h.order(o.HolderOrder)
	}
}

// rate is the number of records read in a second, over the last seconds.
type rate struct {
	since     time.Time
	fed       int64
	perSecond float64
}

// rateOver is the time over which a rate is measured.
const rateOver = 2 * time.Second

func (r *rate) update(fed int64, now time.Time) float64 {
	if passed := now.Sub(r.since); passed >= rateOver || r.perSecond == 0 && passed > 0 {
		r.perSecond = float64(fed-r.fed) / passed.Seconds()
		if passed >= rateOver {
			r.since, r.fed = now, fed
		}
	}
	return r.perSecond
}

// progress returns the progress for the client.
func (s *session) progress(now time.Time) *clusterpb.FeedProgress {
	p := s.feed.Progress()
	out := &clusterpb.FeedProgress{
		Fed: p.Used, Total: max(p.Rows, s.request.GetTotal()), Epoch: p.Epoch + 1, Epochs: s.request.GetEpochs(),
		LeftOut: p.LeftOut, Unread: p.Delivered - p.Used - p.LeftOut, PerSecond: s.rate.update(p.Used, now),
	}
	switch {
	case p.Waiting:
		out.Brake = "the source"
	case p.Full:
		out.Brake = "the program"
	}
	return out
}
