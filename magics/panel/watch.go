package panel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

const (
	listEvery  = 2 * time.Second // between two looks at the list of clusters
	retryEvery = time.Second     // between two attempts to reach a driver
)

// update is what the panel learns: the status of a cluster, or why there is none.
type update = session.Received[*clusterpb.ClusterStatus]

// watch sends the state now and after each change until ctx ends. The cluster is the named one;
// without a name the session's current one, else the newest live one.
func (c *comm) watch(ctx context.Context, name string) {
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	var (
		shown    string
		state    State
		updates  <-chan update // of the cluster that is shown
		stop     = func() {}
		sequence int64
		last     []byte
	)
	defer func() { stop() }()
	for {
		changed := c.Session.Changed()
		state.Clusters = c.list(ctx)
		if of := pick(name, state.Clusters); of != shown {
			shown, state.Cluster, state.Problem = of, nil, ""
			stop()
			updates, stop = c.subscribe(ctx, of)
		}
		for again := false; !again; {
			// Between a change of the selection and the first status there is nothing to show.
			if shown == "" || state.Cluster != nil || state.Problem != "" {
				last, sequence = c.sendState(state, last, sequence)
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
				again = true
			case <-tick.C:
				again = true
			case u := <-updates:
				state.Cluster, state.Problem = nil, ""
				if u.Err != nil {
					state.Problem = result.NewReport(u.Err).Value
				} else {
					state.Cluster = describe(u.Msg)
				}
			}
		}
	}
}

// sendState sends a state that differs from the last one.
func (c *comm) sendState(s State, last []byte, sequence int64) ([]byte, int64) {
	raw, err := json.Marshal(s)
	if err != nil || bytes.Equal(raw, last) {
		return last, sequence
	}
	sequence++
	c.send(struct {
		Type     string `json:"type"`
		Sequence int64  `json:"sequence"`
		State
	}{"state", sequence, s})
	return raw, sequence
}

func (c *comm) list(ctx context.Context) []Listed {
	ctx, cancel := context.WithTimeout(ctx, session.AnswerTimeout)
	defer cancel()
	infos, err := c.Session.Options.Connector.List(ctx)
	if err != nil {
		return []Listed{} // the next look finds them
	}
	return listClusters(infos, c.Session.LastName())
}

// pick returns the cluster to show; "" if there is none.
func pick(name string, all []Listed) string {
	newest := ""
	for _, l := range all {
		if l.Name == name || name == "" && l.Current {
			return l.Name
		}
		if l.Live {
			newest = l.Name
		}
	}
	return newest
}

// subscribe follows the status of a cluster until ctx ends or stop is called; "" follows none.
func (c *comm) subscribe(ctx context.Context, name string) (_ <-chan update, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	updates := make(chan update)
	put := func(u update) {
		select {
		case updates <- u:
		case <-ctx.Done():
		}
	}
	if name != "" {
		c.work.Go(func() {
			for ctx.Err() == nil {
				if err := watchCluster(ctx, c.Session, name, put); err != nil && ctx.Err() == nil {
					put(update{Err: err})
				}
				pause(ctx, retryEvery)
			}
		})
	}
	return updates, stop
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// watchCluster passes on the status of a cluster until its driver ends the stream.
func watchCluster(ctx context.Context, of *session.State, name string, put func(update)) error {
	m, release, err := of.Look(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	stream, err := m.Client.Watch(ctx, &clusterpb.WatchRequest{})
	if err != nil {
		return m.Explain(err)
	}
	for {
		st, err := stream.Recv()
		if status.Code(err) == codes.Unimplemented { // a driver of an earlier version
			if st, err = m.Status(ctx); err == nil {
				put(update{Msg: st})
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return m.Explain(err)
		}
		put(update{Msg: st})
	}
}
