package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Fate is what a failed call to a cluster's driver means.
type Fate int

// The fates of a cluster whose driver was called without success.
const (
	Refused    Fate = iota // the driver answered: the error is its own
	Restarting             // the engine starts the driver again; the call can be repeated
	Dead                   // the driver's process is gone, the executors wait for another one
	Silent                 // the driver's process is there and does not answer
	Over                   // the cluster was released or has ended
	Unknown                // no cluster of this name is or was here
)

// String returns the word for logs and tests.
func (f Fate) String() string {
	return [...]string{"refused", "restarting", "dead", "silent", "over", "unknown"}[f]
}

// Connection is a failed call to a cluster's driver, with what is known of the cluster
// without asking the driver.
type Connection struct {
	Cluster string
	Err     error
	Info    *ClusterInfo         // from the state folder; nil: there is no such cluster
	Record  *state.ClusterRecord // from the history, the newest of that name; nil: there is none
}

// Fate returns what the failed call means. It is the only place that decides it.
func (c Connection) Fate() Fate {
	switch {
	case !c.lost():
		return Refused
	case c.Info == nil && (c.Record == nil || c.Record.Until.IsZero()): // without a state there is nothing to attach to
		return Unknown
	case c.Info == nil, c.ended():
		return Over
	case c.answered():
		return Refused
	case c.Info.Live && c.timedOut():
		return Silent
	case c.Info.Hosted:
		return Restarting
	case !c.Info.Live:
		return Dead
	}
	return Silent
}

// ended returns whether the history has the end of the very cluster that the state folder
// still names: a managed one keeps its state until clients have read why it ended.
func (c Connection) ended() bool {
	return c.Record != nil && !c.Record.Until.IsZero() && !c.Record.Until.Before(c.Info.Since)
}

// lost returns whether the call may have failed because of the connection.
func (c Connection) lost() bool {
	switch status.Code(c.Err) {
	case codes.Unavailable, codes.Aborted:
		return true
	}
	return result.Broken(c.Err) || errors.Is(c.Err, client.ErrNoDriver) || errors.Is(c.Err, os.ErrNotExist)
}

// timedOut returns whether nothing was answered although the connection stands.
func (c Connection) timedOut() bool {
	return result.Broken(c.Err) && status.Code(c.Err) != codes.Unavailable
}

// answered returns whether the driver itself wrote the error: it is there, and cannot do what
// was asked.
func (c Connection) answered() bool {
	return status.Code(c.Err) == codes.Unavailable && !result.Broken(c.Err)
}

// Lost is a call that failed because of the cluster's driver: what that means and what to do next.
type Lost struct {
	result.ClusterError
	Fate Fate
}

// Unwrap makes it a ClusterError for reports and exit codes.
func (l *Lost) Unwrap() error { return &l.ClusterError }

// engineExit is the exit code of the command line for a cluster that is not there.
const engineExit = 69

// explain returns the error for a failed call: the driver's own one, or a *Lost. say writes a
// command as the user types it; maker is the command that makes a cluster.
func (c Connection) explain(say func(string) string, maker string) error {
	name := "cluster " + c.Cluster
	l := &Lost{Fate: c.Fate()}
	l.Code = engineExit
	switch l.Fate {
	case Refused:
		return result.Answered(c.Err)
	case Restarting:
		l.Text = fmt.Sprintf("the driver of %s ended, and %s starts it again", name, strings.ToUpper(c.Info.Backend))
		l.Remedy = "repeat the command"
	case Dead:
		l.Text, l.Remedy = "the driver of "+name+" died", say("attach "+c.Cluster)+" or "+say("reset -c "+c.Cluster)+" starts another one"
	case Silent:
		l.Text = fmt.Sprintf("the driver of %s, process %d, does not answer", name, c.Info.PID)
		l.Remedy = fmt.Sprintf("%s ends it and starts another one, %s releases the cluster", say("reset -c "+c.Cluster), say("shutdown --force -c "+c.Cluster))
		if c.Info.Stopped {
			l.Text += ": it is stopped (SIGSTOP or a debugger)"
			l.Remedy = fmt.Sprintf("kill -CONT %d continues it, %s", c.Info.PID, l.Remedy)
		}
	case Over:
		l.Text = name + " is over since " + clockOf(c.Record.Until, time.Now())
		if c.Record.Why != "" {
			l.Text += ": " + c.Record.Why
		}
		l.Remedy = fmt.Sprintf("%s makes another, %s shows its lines", maker, say("logs -c "+c.Cluster))
	case Unknown:
		l.Text, l.Code = "there is no "+name, 1
	}
	return l
}

// clockOf writes a time of the past: of today without the date.
func clockOf(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// FateOf returns what an error of Explain means.
func FateOf(err error) Fate {
	if l, ok := errors.AsType[*Lost](err); ok {
		return l.Fate
	}
	return Refused
}

// settleMost is how long the state of a driver whose connection broke may take to show its end.
const settleMost = 2 * time.Second

// Explain returns the error of a failed call to a cluster's driver in words: the driver's own
// answer, or what the lost connection means.
func (s *State) Explain(name string, err error) error {
	if err == nil || !(Connection{Err: err}).lost() {
		return result.Answered(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), settleMost)
	defer cancel()
	for {
		c := s.connection(name, err)
		fate := c.Fate()
		switch {
		case fate != Silent && fate != Refused, ctx.Err() != nil, fate == Silent && c.Info.Stopped:
			return s.named(c.explain(s.Say, s.maker()))
		case status.Code(err) == codes.Unavailable: // also of a driver that ends: its state will show that
		case s.answers(ctx, name):
			return result.Answered(err) // only this call took too long
		default:
			return c.explain(s.Say, s.maker())
		}
		select {
		case <-ctx.Done():
		case <-time.After(settleMost / 20):
		}
	}
}

// answers returns whether a cluster's driver answers at once.
func (s *State) answers(ctx context.Context, name string) bool {
	c, err := s.Options.Connector.Dial(ctx, name)
	if err != nil {
		return false
	}
	closeClient(c)
	return true
}

// connection collects what is known of a cluster without asking its driver.
func (s *State) connection(name string, err error) Connection {
	c := Connection{Cluster: name, Err: err}
	if infos, lerr := s.Options.Connector.List(context.WithoutCancel(s.ctx)); lerr == nil { // reads files only
		if i := slices.IndexFunc(infos, func(i ClusterInfo) bool { return i.Name == name }); i >= 0 {
			c.Info = &infos[i]
		}
	}
	if s.Options.Archive == nil {
		return c
	}
	if pasts, perr := s.Options.Archive.Pasts(); perr == nil {
		for _, p := range slices.Backward(pasts) {
			if p.Name == name {
				c.Record = p
				break
			}
		}
	}
	return c
}

// named adds the names of the clusters that there are to the error of one that is unknown.
func (s *State) named(err error) error {
	l, ok := errors.AsType[*Lost](err)
	if !ok || l.Fate != Unknown {
		return err
	}
	if infos, lerr := s.Options.Connector.List(s.ctx); lerr == nil && len(infos) > 0 {
		var names []string
		for _, i := range infos {
			names = append(names, i.Name)
		}
		l.Remedy = "there are " + strings.Join(names, ", ")
	}
	return l
}
