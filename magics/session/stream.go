package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/render"
)

// Received is one message of a stream, or its end.
type Received[T any] struct {
	Msg T
	Err error
}

// Receive reads a stream into a channel, so that it can be waited for beside an interrupt. The
// last value has the error. stop, which must be called after the stream's context is cancelled,
// waits for the reader.
func Receive[T any](recv func() (T, error)) (values <-chan Received[T], stop func()) {
	ch, quit, gone := make(chan Received[T]), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			msg, err := recv()
			select {
			case ch <- Received[T]{msg, err}:
			case <-quit:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return ch, func() { close(quit); <-gone }
}

// Stream is what a driver sends of something that goes on, such as a run. Where the engine starts
// the driver again the call is repeated at the next driver. One goroutine uses it.
type Stream[T any] struct {
	Handle  *Handle // of the driver that is asked now
	Updates <-chan Received[T]

	out    render.Output
	open   func(context.Context, clusterpb.ControlClient) (func() (T, error), error)
	ctx    context.Context // of the calls; Close ends it
	cancel context.CancelFunc
	stop   func()
	told   bool // that the driver is awaited
}

// OpenStream calls a cluster's driver by open, which gives the function that receives. out is
// shown when the driver is awaited.
func OpenStream[T any](ctx context.Context, m *Handle, out render.Output, open func(context.Context, clusterpb.ControlClient) (func() (T, error), error)) *Stream[T] {
	s := &Stream[T]{Handle: m, out: out, open: open}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.begin(0)
	return s
}

// begin calls the driver after a pause. A call that fails is reported like the end of a stream.
func (s *Stream[T]) begin(pause time.Duration) {
	var recv func() (T, error)
	s.Updates, s.stop = Receive(func() (T, error) {
		if recv == nil {
			var none T
			select {
			case <-s.ctx.Done():
				return none, s.ctx.Err()
			case <-time.After(pause):
			}
			var err error
			if recv, err = s.open(s.ctx, s.Handle.Client); err != nil {
				return none, err
			}
		}
		return recv()
	})
}

// Close ends the call and waits for its reader.
func (s *Stream[T]) Close() {
	s.cancel()
	s.stop()
}

// reopenPause is between the end of a call and its repetition.
const reopenPause = 250 * time.Millisecond

// Reopen repeats the call after it ended with err, where the engine starts the driver again. Else
// it returns what the end means.
func (s *Stream[T]) Reopen(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the driver ended its answer too early")
	}
	meaning := s.Handle.Explain(err)
	if FateOf(meaning) != Restarting {
		return meaning
	}
	if !s.told {
		s.out.Stderr("the driver of cluster " + s.Handle.Name + " ended, and its engine starts it again: waiting for it\n")
		s.told = true
	}
	if s.Handle, err = s.Handle.State.Redial(s.ctx, s.Handle); err != nil {
		return err
	}
	s.stop()
	s.begin(reopenPause)
	return nil
}

// Heard tells that a message came: the next driver's end is news again.
func (s *Stream[T]) Heard() { s.told = false }

// Redial gives the handle by which a cluster's driver can be called again: a new one where the
// process is gone that stands before a hosted driver.
func (s *State) Redial(ctx context.Context, m *Handle) (*Handle, error) {
	if c := s.connection(m.Name, nil); c.Info == nil || c.Info.Live {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, RecoverTimeout)
	defer cancel()
	c, err := s.Options.Connector.Dial(ctx, m.Name)
	if err != nil {
		return nil, s.Explain(m.Name, err)
	}
	return s.adopt(m.Name, c, s.owns(m)), nil
}

// defaultPatience is how long a driver may send nothing before it is asked whether it is there.
const defaultPatience = 10 * time.Second

// Silence watches a driver that is to send something at least every second or so, and warns where
// it does not answer. One goroutine uses it.
type Silence struct {
	Timer   *time.Timer // Ask when it fires
	Answers chan error  // Answered takes what comes

	patience time.Duration
	since    time.Time
	told     bool
}

// NewSilence begins to watch.
func NewSilence(patience time.Duration) *Silence {
	if patience <= 0 {
		patience = defaultPatience
	}
	return &Silence{Timer: time.NewTimer(patience), Answers: make(chan error, 1), patience: patience, since: time.Now()}
}

// Heard tells that the driver sent something.
func (q *Silence) Heard(out render.Output) {
	if q.told {
		out.Stderr("the driver answers again\n")
	}
	q.told, q.since = false, time.Now()
	q.Timer.Reset(q.patience)
}

// Ask asks the driver whether it is there. The answer comes on Answers.
func (q *Silence) Ask(ctx context.Context, m *Handle) {
	go func() { // ends soon; nobody need take the answer
		ctx, cancel := context.WithTimeout(ctx, client.DialTimeout)
		defer cancel()
		_, err := m.Status(ctx)
		if err != nil {
			err = m.Explain(err)
		}
		q.Answers <- err
	}()
}

// Answered takes the answer to Ask. A driver that is there and has nothing to send is no news.
func (q *Silence) Answered(out render.Output, err error) {
	if FateOf(err) == Silent && !q.told {
		out.Stderr(fmt.Sprintf("warning: nothing was heard of the run for %d s: %v\n", int(time.Since(q.since).Seconds()), err))
		q.told = true
	}
	q.Timer.Reset(q.patience)
}
