package dispatch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
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
	stop    bool               // the source is to stop
	lost    bool               // the feed failed because a holder ended
	hurt    bool               // a holder ended, or the feed failed because a program left: the run may end or start again
	source  bool               // the feed failed because its source did
	left    map[string]bool    // tasks whose programs read no more
	rate    rate
	route   route
}

// route is how producers on hosts without a holder reach the feed.
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
	s.feed = feed.New(policy, request.GetMore(), tasks)
	d.on = s
	return s
}

// beginOrder tells a holder that the feed begins.
func (s *session) beginOrder() *clusterpb.HolderOrder {
	return &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Begin{Begin: &clusterpb.FeedBegin{Feed: s.id, Key: s.key, Plan: s.request.GetPlan()}}}
}

// policies are the values of FeedRequest's uneven.
var policies = map[string]feed.Uneven{"": feed.Drop, "drop": feed.Drop, "pad": feed.Pad, "spread": feed.Spread}

// open says where producers find the holders.
func (s *session) open() *clusterpb.FeedOpen {
	o := &clusterpb.FeedOpen{Feed: s.id, Key: s.key, Run: s.run.ID, Route: s.route.open}
	for _, task := range s.run.Tasks {
		if h := s.holders[task.Name]; h != nil {
			o.Holders = append(o.Holders, &clusterpb.FeedHolder{Task: task.Name, Host: h.hello.GetHost(), Socket: h.hello.GetSocket()})
		}
	}
	return o
}

// take passes a holder's message to the state machine.
func (s *session) take(task string, m *clusterpb.HolderMessage) {
	switch m := m.GetMessage().(type) {
	case *clusterpb.HolderMessage_Reading:
		if m.Reading.GetFeed() == s.id {
			s.step(feed.Reading{Holder: task, Even: m.Reading.GetEven()})
		}
	case *clusterpb.HolderMessage_LeaseWanted:
		switch w := m.LeaseWanted; {
		case w.GetFeed() != s.id: // its holder stops it
		case !s.has(w.GetEpoch()):
			s.order(task, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{
				Feed: s.id, Producer: w.GetProducer(), Refused: fmt.Sprintf("the feed has %d epochs: there is no epoch %d, counted from 0", max(s.request.GetEpochs(), 1), w.GetEpoch()),
			}}})
		default:
			s.step(feed.LeaseWanted{
				Holder: task, Producer: w.GetProducer(), Epoch: int(w.GetEpoch()), Partition: w.GetPartition(), Attempt: w.GetAttempt(), Digest: w.GetDigest(),
			})
		}
	case *clusterpb.HolderMessage_LeaseEnded:
		if e := m.LeaseEnded; e.GetFeed() == s.id {
			s.step(feed.LeaseEnded{Holder: task, Producer: e.GetProducer(), Rows: e.GetRows(), Complete: e.GetComplete(), Digest: e.GetDigest()})
		}
	case *clusterpb.HolderMessage_Held:
		if h := m.Held; h.GetFeed() == s.id && s.has(h.GetEpoch()) {
			s.step(feed.Held{
				Holder: task, Epoch: int(h.GetEpoch()), Received: h.GetReceived(), MovedIn: h.GetMovedIn(), MovedOut: h.GetMovedOut(),
				Used: h.GetUsed(), Unread: h.GetUnread(), Full: h.GetFull(), Starving: h.GetStarving(),
			})
		}
	case *clusterpb.HolderMessage_Moved:
		if v := m.Moved; v.GetFeed() == s.id && s.has(v.GetEpoch()) && s.holders[v.GetTo()] != nil {
			s.step(feed.Moved{Holder: task, Epoch: int(v.GetEpoch()), To: v.GetTo(), Rows: v.GetRows()})
		}
	case *clusterpb.HolderMessage_Left:
		if m.Left.GetFeed() == s.id {
			s.hurt = s.departs(task, feed.HolderLeft{Holder: task}) || s.hurt
		}
	}
}

// sourceFailed takes the client's word that its source has failed.
func (s *session) sourceFailed(reason string) {
	before := s.feed.Progress().Over
	s.step(feed.SourceFailed{Reason: reason})
	s.source = s.source || !before
}

// gone notes that a holder attends no more. If the feed fails by that, a run that ends, too, has the better reason.
func (s *session) gone(task string) {
	s.lost = s.departs(task, feed.HolderGone{Holder: task}) || s.lost
	s.hurt = true
}

// departs takes the event that a task reads no more; it returns whether the feed fails by it.
func (s *session) departs(task string, e feed.Event) bool {
	s.left[task] = true
	before := s.feed.Progress().Fault
	s.step(e)
	return before == "" && s.feed.Progress().Fault != ""
}

// has is whether an epoch is one of the feed.
func (s *session) has(epoch int32) bool { return epoch >= 0 && epoch < max(s.request.GetEpochs(), 1) }

// step has the state machine take an event and does what it says.
func (s *session) step(e feed.Event) {
	for _, a := range s.feed.Step(e) {
		switch a := a.(type) {
		case feed.Lease:
			s.order(a.Holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{
				Feed: s.id, Producer: a.Producer, Skip: a.Skip, Complete: a.Complete, Digest: a.Digest,
			}}})
		case feed.Allow:
			s.order(a.Holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Allow{Allow: &clusterpb.FeedAllow{
				Feed: s.id, Epoch: int32(a.Epoch), Rows: a.Rows,
			}}})
		case feed.Move:
			s.order(a.Holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Move{Move: &clusterpb.FeedMove{
				Feed: s.id, Epoch: int32(a.Epoch), Rows: a.Rows, To: a.To,
			}}})
		case feed.EpochOver:
			s.order(a.Holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_EpochOver{EpochOver: &clusterpb.FeedEpochOver{
				Feed: s.id, Epoch: int32(a.Epoch), Rows: a.Rows, Repeat: a.Repeat, Most: a.Most, Least: a.Least,
			}}})
		case feed.Over:
			if h := s.holders[a.Holder]; h != nil {
				h.over = h.over || !a.More
			}
			s.order(a.Holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Over{Over: &clusterpb.FeedOver{
				Feed: s.id, Reason: a.Reason, More: a.More,
			}}})
		case feed.StopSource:
			s.stop = true
		}
	}
}

func (s *session) order(task string, o *clusterpb.HolderOrder) {
	if h := s.holders[task]; h != nil {
		h.order(o)
	}
}

// rate is how many records are read in a second, over the last seconds.
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

// progress returns what a client shows.
func (s *session) progress(now time.Time) *clusterpb.FeedProgress {
	p := s.feed.Progress()
	out := &clusterpb.FeedProgress{
		Fed: p.Used, Total: max(p.Rows, s.request.GetTotal()), Epoch: int32(p.Epoch) + 1, Epochs: s.request.GetEpochs(), LeftOut: p.LeftOut,
		Unread: p.Delivered - p.Used - p.LeftOut, PerSecond: s.rate.update(p.Used, now),
	}
	switch {
	case p.Waiting:
		out.Brake = "the source"
	case p.Full:
		out.Brake = "the program"
	}
	return out
}
