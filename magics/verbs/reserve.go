package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// reserve gives the cluster that was asked for: the one there is when its options
// are equal, else a new one.
func (inv *invocation) reserve(ctx context.Context) (result.Value, error) {
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
		if m, err = inv.session.Launch(ctx, req); err != nil {
			return nil, err
		}
		if err := inv.lendSession(ctx, m, req); err != nil {
			return nil, errors.Join(err, inv.session.Release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: true, Reason: "the notebook's SparkSession cannot be used"}))
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
func (inv *invocation) existing(ctx context.Context, req *clusterpb.ReserveRequest) (*session.Handle, error) {
	name := req.GetName()
	if name == "" {
		name = inv.session.LastName()
	}
	if name == "" {
		return nil, nil
	}
	m := inv.session.Find(name)
	if m == nil {
		infos, err := inv.session.Options.Connector.List(ctx)
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
		if m, err = inv.session.Reach(ctx, name); err != nil {
			return nil, err
		}
	}
	st, err := m.Status(ctx)
	if err != nil {
		inv.session.Forget(name) // its driver is gone: a new cluster takes its place
		return nil, nil
	}
	if state := st.GetState(); state == "released" || state == "failed" || state == "releasing" {
		inv.session.Forget(name)
		return nil, nil
	}
	if same(st.GetRequest(), req) {
		return m, nil
	}
	if !inv.Has("replace") {
		return nil, command.Usagef(inv.Verb, "cluster %s lives with other options (%s): reserve --replace releases it first, --name makes another", name, differences(st.GetRequest(), req))
	}
	return nil, inv.session.Release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: true, Reason: "replaced by another reserve"})
}

// awaitReady shows the reservation until it is complete. An interrupt releases a
// cluster that this call launched, and only stops waiting for an older one.
func (inv *invocation) awaitReady(ctx context.Context, m *session.Handle, req *clusterpb.ReserveRequest, fresh bool) (result.Value, error) {
	// The driver keeps the reservation's timeout; this one is for a driver that hangs.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.GetTimeoutMillis())*time.Millisecond+time.Minute)
	defer cancel()
	stream, err := m.Client.Reserve(ctx, req)
	if err != nil {
		return nil, result.Answered(err)
	}
	v := render.NewView(inv.out)
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

func (inv *invocation) reserveUpdate(v *render.View, m *session.Handle, req *clusterpb.ReserveRequest, u *clusterpb.ReserveUpdate, fresh bool) (ready bool, err error) {
	for _, n := range u.GetNotes() {
		inv.out.Stderr(render.NoteText(n) + "\n")
	}
	if f := u.GetFailure(); f != nil {
		v.Show(true, func() render.Bundle { return render.Reservation(m.Name, req.GetRoles(), u) })
		if fresh {
			inv.session.Forget(m.Name)
		}
		return false, &result.RunFailed{Failure: f}
	}
	if u.GetReady() {
		return true, nil
	}
	v.Show(false, func() render.Bundle { return render.Reservation(m.Name, req.GetRoles(), u) })
	return false, nil
}

func (inv *invocation) readyValue(ctx context.Context, v *render.View, m *session.Handle, seconds float64, fresh bool) (result.Value, error) {
	st, err := m.Status(ctx)
	if err != nil {
		return nil, result.Answered(err)
	}
	if fresh {
		v.Show(true, func() render.Bundle { return render.Reserved(st, seconds) })
	} else {
		v.Show(true, func() render.Bundle { return held(st) })
	}
	inv.session.Prefer(m, false)
	return result.OfCluster(st), nil
}

// held is the line for a cluster that lived already.
func held(st *clusterpb.ClusterStatus) render.Bundle {
	text := fmt.Sprintf("cluster %s lives already with these options: %s", st.GetName(), cluster.Describe(st.GetRoles()))
	return render.Bundle{Text: text + "\n", HTML: "<div><b>" + render.Escape(text) + "</b></div>"}
}

func (inv *invocation) giveUp(m *session.Handle, fresh bool) error {
	if !fresh {
		return &result.Interrupted{Text: "stopped waiting; cluster " + m.Name + " is as it was"}
	}
	ctx, cancel := context.WithTimeout(inv.session.Context(), session.ShutdownTimeout)
	defer cancel()
	if err := inv.session.Release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: true, Reason: "reserve was interrupted"}); err != nil {
		return err
	}
	return &result.Interrupted{Text: "the reservation was released"}
}

func (inv *invocation) reserveBroke(m *session.Handle, fresh bool, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the driver ended without a word")
	}
	if fresh {
		inv.session.Forget(m.Name)
	}
	return result.Answered(err)
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
