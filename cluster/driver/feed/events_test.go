package feed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// event is something that happens to a feed.
type event struct {
	name  string
	apply func(*Feed) []Order
}

func do(f *Feed, e event) []Order { return e.apply(f) }

// begun returns a feed of three epochs.
func begun(policy Uneven, more bool, tasks ...string) *Feed {
	return New(Config{Uneven: policy, More: more, Epochs: 3, Tasks: tasks})
}

func sent(holder string, m *clusterpb.HolderMessage) event {
	return event{fmt.Sprint(holder, " ", m), func(f *Feed) []Order { return f.Step(holder, m) }}
}

func reading(holder string, even bool) event {
	return sent(holder,
		&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Reading{Reading: &clusterpb.FeedReading{Even: even}}})
}

func wants(holder string, m *clusterpb.LeaseWanted) event {
	return sent(holder, &clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseWanted{LeaseWanted: m}})
}

func ends(holder string, m *clusterpb.LeaseEnded) event {
	return sent(holder, &clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseEnded{LeaseEnded: m}})
}

func held(holder string, m *clusterpb.FeedHeld) event {
	return sent(holder, &clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Held{Held: m}})
}

func moved(holder string, m *clusterpb.FeedMoved) event {
	return sent(holder, &clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Moved{Moved: m}})
}

func left(holder string) event {
	return sent(holder, &clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{}}})
}

func lost(holder string) event {
	return event{holder + " is lost", func(f *Feed) []Order { return f.Lost(holder) }}
}

func fed(m *clusterpb.FeedEpochFed) event {
	return event{fmt.Sprint("fed ", m), func(f *Feed) []Order { return f.EpochFed(m) }}
}

func sourceFails(reason string) event {
	return event{"the source fails", func(f *Feed) []Order { return f.SourceFailed(reason) }}
}

func wanted(holder string, producer int64, digest string) event {
	return wants(holder, &clusterpb.LeaseWanted{Producer: producer, Attempt: producer, Digest: digest})
}

func ended(holder string, producer, rows int64, complete bool) event {
	return ends(holder, &clusterpb.LeaseEnded{Producer: producer, Rows: rows, Complete: complete})
}

// has is what a holder reports where records came from producers alone.
func has(holder string, received, used int64) event {
	return held(holder, &clusterpb.FeedHeld{Received: received, Used: used})
}

// said is an event with what follows from it.
type said struct {
	event event
	want  string // orders, separated by "; "
}

// play applies events one after another and compares what follows.
func play(t *testing.T, f *Feed, transcript ...said) {
	t.Helper()
	for _, s := range transcript {
		before, stop := f.stopped, ""
		orders := do(f, s.event)
		if f.stopped != before {
			stop = f.stopped
		}
		if text := transcribe(orders, stop); text != s.want {
			t.Errorf("%s:\n got %q\nwant %q", s.event.name, text, s.want)
		}
	}
}

// transcribe returns orders as they are in transcripts; stop is why the source is stopped by them, or "".
func transcribe(orders []Order, stop string) string {
	var all []string
	for _, o := range orders {
		all = append(all, o.Holder+transcribeOne(o.HolderOrder))
	}
	if stop != "" {
		all = append(all, "stop the source: "+stop)
	}
	return strings.Join(all, "; ")
}

func transcribeOne(o *clusterpb.HolderOrder) string {
	switch o := o.GetOrder().(type) {
	case *clusterpb.HolderOrder_Lease:
		switch l := o.Lease; {
		case l.GetRefused() != "":
			return fmt.Sprintf("/%d: refused: %s", l.GetProducer(), l.GetRefused())
		case l.GetComplete():
			return fmt.Sprintf("/%d: complete, %d records", l.GetProducer(), l.GetSkip())
		default:
			return strings.TrimSuffix(fmt.Sprintf("/%d: lease, skip %d of %s", l.GetProducer(), l.GetSkip(), l.GetDigest()),
				" of ")
		}
	case *clusterpb.HolderOrder_Allow:
		return fmt.Sprintf(": allow %d of epoch %d", o.Allow.GetRows(), o.Allow.GetEpoch())
	case *clusterpb.HolderOrder_Move:
		return fmt.Sprintf(": move %d of epoch %d to %s", o.Move.GetRows(), o.Move.GetEpoch(), o.Move.GetTo())
	case *clusterpb.HolderOrder_EpochOver:
		text := fmt.Sprintf(": epoch %d over at %d of %d", o.EpochOver.GetEpoch(), o.EpochOver.GetRows(),
			o.EpochOver.GetMost())
		if n := o.EpochOver.GetRepeat(); n > 0 {
			text += fmt.Sprintf(", repeat %d", n)
		}
		return text
	case *clusterpb.HolderOrder_Over:
		text := ": over"
		if o.Over.GetMore() {
			text += ", another follows"
		}
		if o.Over.GetReason() != "" {
			text += ": " + o.Over.GetReason()
		}
		return text
	}
	return fmt.Sprint(": ", o)
}
