package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/render"
)

// Received is one message of a stream, or its end.
type Received[T any] struct {
	Msg T
	Err error
}

// Receive reads a stream into a channel, for use in a select. The last value has the error. stop waits for the
// reader; it must be called after the stream's context is cancelled.
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

// Stream is a driver's stream about something that lasts, such as a run. If the engine restarts
// the driver, the call is repeated. One goroutine uses it.
type Stream[T any] struct {
	Handle  *Handle // of the current driver
	Updates <-chan Received[*T]

	out    render.Output
	open   func(context.Context, clusterpb.ControlClient) (grpc.ServerStreamingClient[T], error)
	ctx    context.Context // of the calls; Close ends it
	cancel context.CancelFunc
	stop   func()
	told   bool // the restart was reported
}

// OpenStream sends a request to a cluster's driver by call, a method of its client. A restart of the driver is reported
// on out. Each repeated call sends the request as it is then.
func OpenStream[Request, T any](
	ctx context.Context, m *Handle, out render.Output, req *Request,
	call func(
		clusterpb.ControlClient, context.Context, *Request, ...grpc.CallOption,
	) (grpc.ServerStreamingClient[T], error),
) *Stream[T] {
	s := &Stream[T]{Handle: m, out: out}
	s.open = func(ctx context.Context, c clusterpb.ControlClient) (grpc.ServerStreamingClient[T], error) {
		return call(c, ctx, req)
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.begin(0)
	return s
}

// begin calls the driver after a pause. An error of the call is sent like a stream's end.
func (s *Stream[T]) begin(pause time.Duration) {
	var stream grpc.ServerStreamingClient[T]
	s.Updates, s.stop = Receive(func() (*T, error) {
		if stream == nil {
			select {
			case <-s.ctx.Done():
				return nil, s.ctx.Err()
			case <-time.After(pause):
			}
			var err error
			if stream, err = s.open(s.ctx, s.Handle.Client); err != nil {
				return nil, err
			}
		}
		return stream.Recv()
	})
}

// Close ends the call and waits for its reader.
func (s *Stream[T]) Close() {
	s.cancel()
	s.stop()
}

// reopenPause is the pause before a call is repeated.
const reopenPause = 250 * time.Millisecond

// Reopen repeats the call after it ended with err if the engine restarts the driver; otherwise
// it returns the meaning of err.
func (s *Stream[T]) Reopen(err error) error {
	if errors.Is(err, io.EOF) {
		err = s.Handle.CutShort()
	}
	meaning := s.Handle.Explain(err)
	if FateOf(meaning) != Restarting {
		return meaning
	}
	if !s.told {
		s.out.Stderr("the driver of cluster " + s.Handle.Name + " ended, or its host does not answer: waiting for it, or " +
			"for the one that its engine starts\n")
		s.told = true
	}
	if s.Handle, err = s.Handle.State.Redial(s.ctx, s.Handle); err != nil {
		return err
	}
	s.stop()
	s.begin(reopenPause)
	return nil
}

// Heard must be called after each message. Then the next restart is reported again.
func (s *Stream[T]) Heard() { s.told = false }

// Redial returns a handle for calls after a restart of the driver. It is a new one if the proxy of a hosted driver
// has ended.
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

// defaultPatience is the default of Options.Patience.
const defaultPatience = 10 * time.Second

// Silence warns if a driver no longer answers. A driver sends a message every second during a run. One goroutine uses
// a Silence.
type Silence struct {
	Timer   *time.Timer // when it fires, call Ask
	Answers chan error  // pass the received errors to Answered

	patience time.Duration
	since    time.Time
	told     bool
}

// NewSilence starts the timer. patience has the meaning of Options.Patience.
func NewSilence(patience time.Duration) *Silence {
	if patience <= 0 {
		patience = defaultPatience
	}
	return &Silence{Timer: time.NewTimer(patience), Answers: make(chan error, 1), patience: patience, since: time.Now()}
}

// Heard must be called after each message of the driver.
func (q *Silence) Heard(out render.Output) {
	if q.told {
		out.Stderr("the driver answers again\n")
	}
	q.told, q.since = false, time.Now()
	q.Timer.Reset(q.patience)
}

// Ask requests the driver's status. The error, or nil, is sent on Answers.
func (q *Silence) Ask(ctx context.Context, m *Handle) {
	go func() { // ends after DialTimeout, also if no goroutine receives
		ctx, cancel := context.WithTimeout(ctx, client.DialTimeout)
		defer cancel()
		st, err := m.Status(ctx)
		err = m.Explain(err)
		if why := hostedSilence(st); err == nil && why != "" {
			err = errors.New(why)
		}
		q.Answers <- err
	}()
}

// hostedSilence returns why the driver of a run does not answer, from the status that a proxy makes then; "" if it
// answers.
func hostedSilence(st *clusterpb.ClusterStatus) string {
	if st.GetState() != "reserving" || len(st.GetExecutors()) == 0 {
		return ""
	}
	return st.GetExecutors()[0].GetCause()
}

// Answered handles the answer to Ask. It warns if the driver did not answer, or its proxy says that it does not. A
// driver that answered may have had nothing to send.
func (q *Silence) Answered(out render.Output, err error) {
	if fate := FateOf(err); err != nil && (fate == Silent || fate == Refused) && !q.told {
		out.Stderr(fmt.Sprintf("warning: the driver has sent nothing about the run for %d s: %v\n",
			int(time.Since(q.since).Seconds()), err))
		q.told = true
	}
	q.Timer.Reset(q.patience)
}
