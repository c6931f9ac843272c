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

// Fate is the meaning of a failed call to a cluster's driver.
type Fate int

// The meanings of a failed call.
const (
	Refused    Fate = iota // the driver answered with an error
	Restarting             // the engine restarts the driver; the call can be repeated
	Dead                   // the driver's process has ended; executors wait for another driver
	Silent                 // the driver's process exists and does not answer
	Over                   // the cluster was released or has ended
	Unknown                // there is and was no cluster of this name
)

// String returns a word for logs and tests.
func (f Fate) String() string {
	return [...]string{"refused", "restarting", "dead", "silent", "over", "unknown"}[f]
}

// Connection is a failed call to a cluster's driver, with the cluster's data in the state folder and in the history.
type Connection struct {
	Cluster string
	Err     error
	Info    *ClusterInfo         // from the state folder; nil: there is no such cluster
	Record  *state.ClusterRecord // from the history, the newest of that name; nil: there is none
}

// Fate returns the meaning of the failed call.
func (c Connection) Fate() Fate {
	switch {
	case !c.lost():
		return Refused
	case c.Info == nil && (c.Record == nil || c.Record.Until.IsZero()): // nothing to attach to
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

// ended reports whether the history has the end of the cluster in the state folder. A managed cluster keeps its state
// until clients have read why it ended.
func (c Connection) ended() bool {
	return c.Record != nil && !c.Record.Until.IsZero() && !c.Record.Until.Before(c.Info.Since)
}

// lost reports whether the call may have failed because of the connection.
func (c Connection) lost() bool {
	code := status.Code(c.Err)
	return code == codes.Unavailable || code == codes.Aborted || result.Broken(c.Err) ||
		errors.Is(c.Err, client.ErrNoDriver) || errors.Is(c.Err, os.ErrNotExist)
}

// timedOut reports whether the driver did not answer although it was connected.
func (c Connection) timedOut() bool {
	return result.Broken(c.Err) && status.Code(c.Err) != codes.Unavailable
}

// answered reports whether the driver itself returned the error.
func (c Connection) answered() bool {
	return status.Code(c.Err) == codes.Unavailable && !result.Broken(c.Err)
}

// Lost is the error of a call that failed because of the cluster's driver, with a remedy.
type Lost struct {
	result.ClusterError
	Fate Fate
}

// Unwrap makes it a ClusterError for reports and exit codes.
func (l *Lost) Unwrap() error { return &l.ClusterError }

// engineExit is the command line's exit code if the cluster is not available.
const engineExit = 69

// topics are the sections of docs/errors.md.
var topics = map[Fate]string{
	Restarting: "driver-restarts", Dead: "driver-died", Silent: "driver-silent", Over: "cluster-over",
	Unknown: "no-cluster",
}

// explain returns the error for a failed call: the driver's own error, or a *Lost. say formats a command as the user
// types it; maker is the command that creates a cluster.
func (c Connection) explain(say func(string) string, maker string) error {
	name := "cluster " + c.Cluster
	l := &Lost{Fate: c.Fate()}
	l.Code, l.Topic = engineExit, topics[l.Fate]
	switch l.Fate {
	case Refused:
		return result.Answered(c.Err)
	case Restarting:
		l.Text = fmt.Sprintf("the driver of %s ended, and %s starts it again", name, strings.ToUpper(c.Info.Backend))
		l.Remedy = "repeat the command"
	case Dead:
		l.Text, l.Remedy = "the driver of "+name+" died", say("attach "+c.Cluster)+" or "+say("reset -c "+c.Cluster)+
			" starts another one"
	case Silent:
		l.Text = fmt.Sprintf("the driver of %s, process %d, does not answer", name, c.Info.PID)
		l.Remedy = fmt.Sprintf("%s ends it and starts another one, %s releases the cluster", say("reset -c "+c.Cluster),
			say("shutdown --force -c "+c.Cluster))
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
		l.Text, l.Code, l.Remedy = "there is no "+name, 1, maker+" makes one"
		if strings.HasPrefix(c.Cluster, applicationPrefix) { // another machine may have submitted it
			l.Text += " on this machine"
			l.Remedy = "run the command on the machine that submitted it, which has the cluster's keys"
		}
	}
	return l
}

// applicationPrefix begins the names that YARN gives to applications, by which managed clusters are known, too.
const applicationPrefix = "application_"

// clockOf formats a past time, without the date if it is today.
func clockOf(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// FateOf returns the meaning of an error that Explain returned.
func FateOf(err error) Fate {
	if l, ok := errors.AsType[*Lost](err); ok {
		return l.Fate
	}
	return Refused
}

// settleMost bounds the wait until the state of a disconnected driver shows its end.
const settleMost = 2 * time.Second

// Explain returns the error of a failed call to a cluster's driver for the user: the driver's
// own answer, or the meaning of the lost connection.
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
		case status.Code(err) == codes.Unavailable: // also from a driver that ends: its state will show the end
		case s.answers(ctx, name) && errors.Is(err, client.ErrNoDriver):
			return fmt.Errorf("the driver of cluster %s was started again meanwhile: repeat the command", name)
		case s.answers(ctx, name):
			return result.Answered(err) // only this call timed out
		default:
			return c.explain(s.Say, s.maker())
		}
		select {
		case <-ctx.Done():
		case <-time.After(settleMost / 20):
		}
	}
}

// answers reports whether a cluster's driver can be dialled now.
func (s *State) answers(ctx context.Context, name string) bool {
	c, err := s.Options.Connector.Dial(ctx, name)
	if err != nil {
		return false
	}
	closeClient(c)
	return true
}

// connection returns a failed call with the cluster's data that can be read without its driver.
func (s *State) connection(name string, err error) Connection {
	c := Connection{Cluster: name, Err: err}
	if infos, lerr := s.Options.Connector.List(context.WithoutCancel(s.ctx)); lerr == nil { // reads files only
		if i := slices.IndexFunc(infos, func(i ClusterInfo) bool { return i.Name == name }); i >= 0 {
			c.Info = &infos[i]
		}
	}
	c.Record = s.newestPast(func(p *state.ClusterRecord) bool { return p.Name == name })
	return c
}

// named adds the existing clusters to the error of an unknown one.
func (s *State) named(err error) error {
	l, ok := errors.AsType[*Lost](err)
	if !ok || l.Fate != Unknown || strings.Contains(l.Text, applicationPrefix) { // its remedy is another machine
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
