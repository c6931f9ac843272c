package magics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// reserve gives the cluster that was asked for: the one there is when its options
// are equal, else a new one.
func (inv *invocation) reserve(ctx context.Context) (Value, error) {
	req, err := inv.request(ctx)
	if err != nil {
		return nil, err
	}
	m, err := inv.existing(ctx, req)
	if err != nil {
		return nil, err
	}
	fresh := m == nil
	if fresh {
		inv.advise(req)
		if m, err = inv.session.launch(ctx, req); err != nil {
			return nil, err
		}
		if err := inv.lendSession(ctx, m, req); err != nil {
			return nil, errors.Join(err, inv.session.release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: true, Reason: "the notebook's SparkSession cannot be used"}))
		}
	}
	return inv.awaitReady(ctx, m, req, fresh)
}

// advise says beforehand what a person may not have meant.
func (inv *invocation) advise(req *clusterpb.ReserveRequest) {
	inv.out.Stdout(cluster.Describe(req.GetRoles()) + "\n")
	tensorFlow := req.GetFramework() == "" || req.GetFramework() == cluster.TensorFlow
	if inv.Count("ps", 0) > 0 && !inv.Has("chief") && tensorFlow {
		inv.out.Stdout("note: --ps without --chief is for programs whose worker 0 coordinates (TF1 sessions, between-graph replication); ParameterServerStrategy needs --chief\n")
	}
}

// existing is the live cluster a reservation means, nil when a new one is wanted.
func (inv *invocation) existing(ctx context.Context, req *clusterpb.ReserveRequest) (*member, error) {
	name := req.GetName()
	if name == "" {
		name = inv.session.lastName()
	}
	if name == "" {
		return nil, nil
	}
	m := inv.session.member(name)
	if m == nil {
		infos, err := inv.session.opt.Connector.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("find clusters: %w", err)
		}
		live := false
		for _, i := range infos {
			live = live || (i.Name == name && i.Live)
		}
		if !live {
			return nil, nil
		}
		if m, err = inv.session.reach(ctx, name); err != nil {
			return nil, err
		}
	}
	st, err := m.status(ctx)
	if err != nil {
		inv.session.forget(name) // its driver is gone: a new cluster takes its place
		return nil, nil
	}
	if state := st.GetState(); state == "released" || state == "failed" || state == "releasing" {
		inv.session.forget(name)
		return nil, nil
	}
	if same(st.GetRequest(), req) {
		return m, nil
	}
	if !inv.Has("replace") {
		return nil, usagef(inv.Verb, "cluster %s lives with other options (%s): reserve --replace releases it first, --name makes another", name, differences(st.GetRequest(), req))
	}
	return nil, inv.session.release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: true, Reason: "replaced by another reserve"})
}

// awaitReady shows the reservation until it is complete. An interrupt releases a
// cluster that this call launched, and only stops waiting for an older one.
func (inv *invocation) awaitReady(ctx context.Context, m *member, req *clusterpb.ReserveRequest, fresh bool) (Value, error) {
	// The driver keeps the reservation's timeout; this one is for a driver that hangs.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.GetTimeoutMillis())*time.Millisecond+time.Minute)
	defer cancel()
	stream, err := m.client.Reserve(ctx, req)
	if err != nil {
		return nil, answered(err)
	}
	v := newView(inv.out)
	updates, stop := receive(stream.Recv)
	defer stop()
	defer cancel() // before stop, which waits for the stream's end
	for {
		select {
		case <-inv.out.Interrupts():
			return nil, inv.giveUp(m, fresh)
		case u := <-updates:
			if u.err != nil {
				return nil, inv.reserveBroke(m, fresh, u.err)
			}
			if done, err := inv.reserveUpdate(v, m, req, u.msg, fresh); done || err != nil {
				if err != nil {
					return nil, err
				}
				return inv.readyValue(ctx, v, m, u.msg.GetSeconds(), fresh)
			}
		}
	}
}

func (inv *invocation) reserveUpdate(v *view, m *member, req *clusterpb.ReserveRequest, u *clusterpb.ReserveUpdate, fresh bool) (ready bool, err error) {
	for _, n := range u.GetNotes() {
		inv.out.Stderr(noteText(n) + "\n")
	}
	if f := u.GetFailure(); f != nil {
		v.show(true, func() bundle { return reservation(m.name, req.GetRoles(), u) })
		if fresh {
			inv.session.forget(m.name)
		}
		return false, &RunFailed{Failure: f}
	}
	if u.GetReady() {
		return true, nil
	}
	v.show(false, func() bundle { return reservation(m.name, req.GetRoles(), u) })
	return false, nil
}

func (inv *invocation) readyValue(ctx context.Context, v *view, m *member, seconds float64, fresh bool) (Value, error) {
	st, err := m.status(ctx)
	if err != nil {
		return nil, answered(err)
	}
	if fresh {
		v.show(true, func() bundle { return reserved(st, seconds) })
	} else {
		v.show(true, func() bundle { return held(st) })
	}
	inv.session.prefer(m, false)
	return clusterValue(st), nil
}

// held is the line for a cluster that lived already.
func held(st *clusterpb.ClusterStatus) bundle {
	text := fmt.Sprintf("cluster %s lives already with these options: %s", st.GetName(), cluster.Describe(st.GetRoles()))
	return bundle{text: text + "\n", html: "<div><b>" + esc(text) + "</b></div>"}
}

func (inv *invocation) giveUp(m *member, fresh bool) error {
	if !fresh {
		return &Interrupted{Text: "stopped waiting; cluster " + m.name + " is as it was"}
	}
	ctx, cancel := context.WithTimeout(inv.session.context(), shutdownTimeout)
	defer cancel()
	if err := inv.session.release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: true, Reason: "reserve was interrupted"}); err != nil {
		return err
	}
	return &Interrupted{Text: "the reservation was released"}
}

func (inv *invocation) reserveBroke(m *member, fresh bool, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the driver ended without a word")
	}
	if fresh {
		inv.session.forget(m.name)
	}
	return answered(err)
}

// received is one message of a stream, or its end.
type received[T any] struct {
	msg T
	err error
}

// receive reads a stream into a channel, so that it can be waited for beside an
// interrupt. The last value has the error. stop, which must be called after the
// stream's context is cancelled, waits for the reader.
func receive[T any](recv func() (T, error)) (values <-chan received[T], stop func()) {
	ch, quit, gone := make(chan received[T]), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			msg, err := recv()
			select {
			case ch <- received[T]{msg, err}:
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
