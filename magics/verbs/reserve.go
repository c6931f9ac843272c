package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

func reserveVerb(engines cluster.Engines) row {
	return row{
		Verb: command.Verb{
			Name: "reserve", Summary: "reserve executors and wait until every one is ready", Magic: true,
			Options: append(reserveOptions(engines), clusterOption), Example: "reserve --workers 4 --gpus 1",
			Long:  "With the options of a running cluster it returns that cluster.",
			Check: checkTimeouts,
		},
		run: (*invocation).reserve, ownInterrupts: true, configured: true,
	}
}

// minHeartbeatTimeout is several heartbeats, so that the delay of one does not cost an executor.
const minHeartbeatTimeout = 5 * time.Second

// checkTimeouts refuses an option given by both of its names, and a timeout that a slow network exceeds.
func checkTimeouts(c *command.Command) error {
	if c.Has("heartbeat-timeout") && c.Millis("heartbeat-timeout", 0) < minHeartbeatTimeout.Milliseconds() {
		return command.Usagef(c.Verb, "--heartbeat-timeout is at least %s: agents send a heartbeat every second, "+
			"and a network may delay some", minHeartbeatTimeout)
	}
	if c.Has("timeout") && c.Has("reserve-timeout") {
		return command.Usagef(c.Verb, "--timeout and --reserve-timeout mean the same: give only one of them")
	}
	return nil
}

// reserve returns the existing cluster if it has equal options, otherwise a new one.
func (inv *invocation) reserve(ctx context.Context) (result.Value, error) {
	req, err := inv.request(ctx)
	if err != nil {
		return nil, err
	}
	m, fresh, err := inv.existingOrNew(ctx, req)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := inv.lendSession(ctx, m, req); err != nil {
			return nil, errors.Join(err, inv.session.Release(ctx, inv.out, m,
				&clusterpb.ShutdownRequest{Force: true, Reason: "the notebook's SparkSession cannot be used"}))
		}
	}
	return inv.awaitReady(ctx, m, req, fresh)
}

// existingOrNew returns the live cluster that a reservation means, or a new one.
func (inv *invocation) existingOrNew(ctx context.Context,
	req *clusterpb.ReserveRequest,
) (m *session.Handle, fresh bool, err error) {
	if m, err = inv.existing(ctx, req); err != nil || m != nil {
		return m, false, err
	}
	inv.advise(req)
	ctx, cancel := context.WithTimeout(ctx, session.RecoverTimeout)
	defer cancel()
	for {
		if m, err = inv.session.Launch(ctx, req); err == nil {
			return m, true, nil
		}
		if _, taken := errors.AsType[*session.Taken](err); !taken {
			return nil, false, err
		}
		// Another command has reserved the name meanwhile, or the driver of a cluster that was shut down is still ending.
		if m, eerr := inv.existing(ctx, req); eerr != nil || m != nil {
			return m, false, eerr
		}
		select {
		case <-ctx.Done():
			return nil, false, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// advise warns of options that the user may not have meant.
func (inv *invocation) advise(req *clusterpb.ReserveRequest) {
	inv.out.Stdout(cluster.Describe(req.GetRoles()) + "\n")
	tensorFlow := req.GetFramework() == "" || req.GetFramework() == cluster.TensorFlow
	if inv.Count("ps", 0) > 0 && !inv.Has("chief") && tensorFlow {
		inv.out.Stdout("note: --ps without --chief is for programs whose worker 0 coordinates (TF1 sessions, " +
			"between-graph replication); ParameterServerStrategy needs --chief\n")
	}
}

// existing returns the live cluster that a reservation means; nil if a new one is needed.
func (inv *invocation) existing(ctx context.Context, req *clusterpb.ReserveRequest) (*session.Handle, error) {
	name := cmp.Or(req.GetName(), inv.session.LastName())
	if name == "" {
		return nil, nil
	}
	m := inv.session.Find(name)
	if m == nil {
		infos, err := inv.session.Options.Connector.List(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(infos, func(i session.ClusterInfo) bool { return i.Name == name && i.Live }) {
			return nil, nil
		}
		if m, err = inv.session.Reach(ctx, name); err != nil {
			return nil, inv.unlessEnded(name, err)
		}
	}
	st, err := m.Status(ctx)
	if err != nil {
		return nil, inv.unlessEnded(name, m.Explain(err))
	}
	if state := st.GetState(); state == "released" || state == "failed" || state == "releasing" {
		inv.session.Forget(name)
		return nil, nil
	}
	if same(st.GetRequest(), req) {
		m.Hold()
		return m, nil
	}
	if !inv.Has("replace") {
		return nil, command.Usagef(inv.Verb, "cluster %s already runs with other options (%s): "+
			"release it first with reserve --replace, or choose another --name", name, differences(st.GetRequest(), req))
	}
	return nil, inv.release(ctx, m, &clusterpb.ShutdownRequest{Force: true, Reason: "replaced by another reserve"})
}

// unlessEnded returns an error of a call to a cluster's driver; nil if that has ended: a new cluster replaces it.
func (inv *invocation) unlessEnded(name string, err error) error {
	if fate := session.FateOf(err); fate != session.Dead && fate != session.Over && fate != session.Unknown {
		return err
	}
	inv.session.Forget(name)
	return nil
}

// followReservation passes what the driver says of the reservation to take, with that driver's handle, until take is
// done or fails. An interrupt releases a cluster that this call launched; for an existing one it only ends the wait.
func (inv *invocation) followReservation(
	ctx context.Context, m *session.Handle, req *clusterpb.ReserveRequest, fresh bool,
	take func(*session.Handle, *clusterpb.ReserveUpdate) (done bool, err error),
) error {
	// The driver applies the reservation's timeout; this one is for a driver that hangs.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.GetTimeoutMillis())*time.Millisecond+time.Minute)
	defer cancel()
	stream := session.OpenStream(ctx, m, inv.out, req, clusterpb.ControlClient.Reserve)
	defer stream.Close()
	for {
		select {
		case <-inv.out.Interrupts():
			return inv.giveUp(stream.Handle, fresh)
		case u := <-stream.Updates:
			if u.Err != nil {
				if err := stream.Reopen(u.Err); err != nil {
					if fresh {
						inv.session.Forget(m.Name)
					}
					return err
				}
				continue
			}
			stream.Heard()
			if done, err := take(stream.Handle, u.Msg); done || err != nil {
				return err
			}
		}
	}
}

// awaitReady shows the reservation until it is complete, also by another driver that the engine starts meanwhile.
func (inv *invocation) awaitReady(ctx context.Context, m *session.Handle, req *clusterpb.ReserveRequest,
	fresh bool,
) (result.Value, error) {
	v := render.NewView(inv.out)
	var value result.Value
	err := inv.followReservation(ctx, m, req, fresh, func(now *session.Handle, u *clusterpb.ReserveUpdate) (bool, error) {
		ready, err := inv.reserveUpdate(v, m, req, u, fresh)
		if ready {
			value, err = inv.readyValue(ctx, v, now, u.GetSeconds(), fresh)
		}
		return ready, err
	})
	return value, err
}

func (inv *invocation) reserveUpdate(v *render.View, m *session.Handle, req *clusterpb.ReserveRequest,
	u *clusterpb.ReserveUpdate, fresh bool,
) (ready bool, err error) {
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

func (inv *invocation) readyValue(ctx context.Context, v *render.View, m *session.Handle,
	seconds float64, fresh bool,
) (result.Value, error) {
	st, err := m.Status(ctx)
	if err != nil {
		return nil, m.Explain(err)
	}
	v.Show(true, func() render.Bundle {
		if fresh {
			return render.Reserved(st, seconds)
		}
		return held(st)
	})
	inv.session.SetCurrent(m, false)
	return result.OfCluster(st), nil
}

// held returns the line for a cluster that exists already.
func held(st *clusterpb.ClusterStatus) render.Bundle {
	return render.Title(fmt.Sprintf("cluster %s is already running with these options: %s", st.GetName(),
		cluster.Describe(st.GetRoles())))
}

func (inv *invocation) giveUp(m *session.Handle, fresh bool) error {
	if !fresh {
		return &result.Interrupted{Text: "stopped waiting; cluster " + m.Name + " is as it was"}
	}
	ctx, cancel := context.WithTimeout(inv.session.Context(), session.ShutdownTimeout)
	defer cancel()
	if err := inv.session.Release(ctx, inv.out, m,
		&clusterpb.ShutdownRequest{Force: true, Reason: "reserve was interrupted"}); err != nil {
		return err
	}
	return &result.Interrupted{Text: "the reservation was released"}
}
