package session

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Connector finds and starts clusters. The session closes connections that implement io.Closer.
type Connector interface {
	// Launch starts a driver for the request.
	Launch(ctx context.Context, req *clusterpb.ReserveRequest) (name string, c clusterpb.ControlClient, err error)
	// Dial connects to a live driver.
	Dial(ctx context.Context, name string) (clusterpb.ControlClient, error)
	// List returns all clusters of this user on this host, oldest first.
	List(ctx context.Context) ([]ClusterInfo, error)
	// Recover starts a new driver for a cluster whose driver died, or connects to a live one.
	Recover(ctx context.Context, name string) (clusterpb.ControlClient, error)
	// Kill ends the process of a driver that does not answer. The cluster is not released.
	Kill(ctx context.Context, name string) error
}

// ClusterInfo is the data of a cluster in its state folder.
type ClusterInfo struct {
	Name    string    `json:"name"`
	Backend string    `json:"backend"`
	Owner   string    `json:"owner"`
	Dir     string    `json:"dir"`
	Live    bool      `json:"live"`       // the process of its driver exists
	Hosted  bool      `json:"hosted"`     // its engine runs its driver; Dial finds the driver
	PID     int       `json:"driver_pid"` // process of its driver, or of a hosted driver's proxy
	Stopped bool      `json:"stopped"`    // that process is stopped by a signal
	Since   time.Time `json:"since"`
	Note    string    `json:"note"`
}

// Options are the settings of a session. They are not changed later.
type Options struct {
	Connector Connector
	// Owner is the name of the kernel's connection file: the next kernel with that name
	// attaches to clusters reserved under it. "" on the command line.
	Owner string
	// Client is this session's name as a client of clusters.
	Client string
	// Python is the interpreter of the notebook's cells, and the default for tasks.
	Python string
	// TensorBoardPython is an interpreter with tensorboard.
	TensorBoardPython string
	// WorkingDir is the base of relative paths if Python does not return one; default: the folder of the process.
	WorkingDir string
	Version    string
	// Inventory lists this machine's GPUs; nil: unknown.
	Inventory func(context.Context) ([]*clusterpb.GPU, error)
	// Engines are the values of --backend.
	Engines cluster.Engines
	// History reads records of clusters, also of ended ones; may be nil.
	History HistoryReader
	// Remains returns what an earlier `tfcluster install` wrote beside what pip installed; may be nil.
	Remains func() []string
	// Channels returns how Jupyter connects to this kernel; nil: this process is no kernel.
	Channels func() (Channels, error)
	// Patience is the time in which a driver may send nothing about a run before Silence asks for its status. 0 means
	// 10 s.
	Patience time.Duration
	// Shell reports whether this is the command line, which has the verbs without %tfcluster.
	Shell bool
}

// Channels are the connections between Jupyter and a kernel.
type Channels struct {
	Encrypted bool
	Host      string // of their ports; "": the connections are Unix sockets
}

// State is the state of a session: its clusters and the current one. Its methods may be called
// from any goroutine.
type State struct {
	// not changed after NewState
	Options Options
	ctx     context.Context // ends with Close; the Hold streams end with it
	end     context.CancelFunc
	holds   sync.WaitGroup
	boards  boards
	began   chan struct{} // closed when reattach has ended

	mu sync.Mutex
	// guarded by mu
	clusters  map[string]*Handle
	used      []string // names of clusters; the current cluster is the last one
	announce  string
	submitted map[string]*Submission // last start of each cluster, by its name
	changed   chan struct{}          // closed at the next change of clusters or used; see Changed
}

// NewState returns a session's state. With an owner it attaches in the background to the
// clusters of the last kernel of that name. Close must be called.
func NewState(ctx context.Context, opt Options) *State {
	ctx, end := context.WithCancel(ctx)
	s := &State{
		Options: opt, ctx: ctx, end: end, began: make(chan struct{}),
		boards: boards{byID: map[string]Board{}}, clusters: map[string]*Handle{}, submitted: map[string]*Submission{},
		changed: make(chan struct{}),
	}
	if opt.Owner == "" {
		close(s.began)
		return s
	}
	s.holds.Go(func() {
		defer close(s.began)
		s.reattach(ctx)
	})
	return s
}

// Close closes all connections without releasing any cluster, and waits for the session's
// goroutines.
func (s *State) Close() {
	s.end()
	s.mu.Lock()
	members := s.clusters
	s.clusters = map[string]*Handle{}
	s.mu.Unlock()
	s.holds.Wait()
	for _, m := range members {
		m.close()
	}
}

// adopt adds a cluster that the session has reserved or attached to, and registers as its
// client.
func (s *State) adopt(name string, client clusterpb.ControlClient, owned bool) *Handle {
	m := s.keep(name, client, owned)
	m.Hold()
	return m
}

// keep adds a connection to a cluster and makes it current.
func (s *State) keep(name string, client clusterpb.ControlClient, owned bool) *Handle {
	ctx, drop := context.WithCancel(s.ctx)
	m := &Handle{Name: name, Client: client, State: s, owned: owned, drop: drop}
	m.open = func() { s.holds.Go(func() { m.hold(ctx, s.Options.Client) }) }
	s.mu.Lock()
	old := s.clusters[name]
	s.clusters[name] = m
	s.use(name)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	return m
}

// Forget removes a cluster that has ended.
func (s *State) Forget(name string) {
	s.mu.Lock()
	m := s.clusters[name]
	delete(s.clusters, name)
	s.used = slices.DeleteFunc(s.used, func(n string) bool { return n == name })
	s.announceChange()
	s.mu.Unlock()
	s.boards.forget(name)
	if m != nil {
		m.close()
	}
}

// Find returns the session's cluster of that name; nil if it has none.
func (s *State) Find(name string) *Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[name]
}

// LastName returns the current cluster, which commands without -c mean; "" if there is none.
func (s *State) LastName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) == 0 {
		return ""
	}
	return s.used[len(s.used)-1]
}

// use makes a cluster current. Caller holds mu.
func (s *State) use(name string) {
	s.used = append(slices.DeleteFunc(s.used, func(n string) bool { return n == name }), name)
	s.announceChange()
}

// announceChange closes the channel of Changed. Caller holds mu.
func (s *State) announceChange() {
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed when the session gets, loses or selects a cluster.
func (s *State) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Look returns a handle for reading a cluster. The handle is the session's own, or a new connection that release
// closes. The cluster does not become one of the session's.
func (s *State) Look(ctx context.Context, name string) (m *Handle, release func(), err error) {
	if m := s.Find(name); m != nil {
		return m, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client, err := s.Options.Connector.Dial(ctx, name)
	if err != nil {
		return nil, nil, s.Explain(name, err)
	}
	m = &Handle{Name: name, Client: client, State: s, drop: func() {}}
	return m, m.close, nil
}

// SetCurrent makes a cluster current. If owned, it is released with the session.
func (s *State) SetCurrent(m *Handle, owned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(m.Name)
	m.owned = m.owned || owned
}

// Context returns a context that ends with Close.
func (s *State) Context() context.Context { return s.ctx }

// Go runs work in a goroutine. Close waits for it.
func (s *State) Go(work func()) { s.holds.Go(work) }

// Pick returns the cluster that a command means: -c, otherwise the current one, otherwise the
// only live one.
func (s *State) Pick(ctx context.Context, c *command.Command) (*Handle, error) {
	name := cmp.Or(c.Text("cluster"), s.LastName())
	if name != "" {
		return s.Reach(ctx, name)
	}
	infos, err := s.Options.Connector.List(ctx)
	if err != nil {
		return nil, err
	}
	var live, dead []string
	for _, i := range infos {
		if i.Live || i.Hosted {
			live = append(live, i.Name)
		} else {
			dead = append(dead, i.Name)
		}
	}
	switch {
	case len(live) == 1:
		return s.Reach(ctx, live[0])
	case len(live) > 1:
		return nil, command.Usagef(c.Verb, "which cluster? There are %s: name one with -c", strings.Join(live, ", "))
	case len(dead) > 0:
		return nil, &result.ClusterError{
			Text: "no live cluster; the driver of " + strings.Join(dead, ", ") +
				" died", Remedy: s.Say("attach "+dead[len(dead)-1]) + " attaches to it", Topic: topics[Dead],
		}
	}
	if p := s.lastOwn(); p != nil {
		return nil, (Connection{Cluster: p.Name, Err: os.ErrNotExist, Record: p}).explain(s.Say, s.maker())
	}
	return nil, &result.ClusterError{Text: "there is no cluster", Remedy: s.maker() + " makes one", Topic: topics[Unknown]}
}

// Reach returns the cluster of that name, and connects to it if the session has no connection.
func (s *State) Reach(ctx context.Context, name string) (*Handle, error) {
	if m := s.Find(name); m != nil {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client, err := s.Options.Connector.Dial(ctx, name)
	if err != nil {
		return nil, s.Explain(name, err)
	}
	return s.keep(name, client, false), nil
}

// Time limits of calls to a driver.
const (
	dialTimeout    = 10 * time.Second
	AnswerTimeout  = 15 * time.Second // a call to a live driver
	RecoverTimeout = time.Minute
	quickTimeout   = 2 * time.Second // for output that is shown only if it is available
)

// Names returns the names of the clusters for completion, those of the session first.
func (s *State) Names(ctx context.Context) []string {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.clusters))
	s.mu.Unlock()
	infos, err := s.Options.Connector.List(ctx)
	if err != nil {
		return names
	}
	for _, i := range infos {
		if !slices.Contains(names, i.Name) {
			names = append(names, i.Name)
		}
	}
	return names
}

// Say formats a command as this session's user types it.
func (s *State) Say(words string) string {
	if s.Options.Shell {
		return "tfcluster " + words
	}
	return "%tfcluster " + words
}

// maker returns the command that creates a cluster: the command line has no reserve.
func (s *State) maker() string {
	if s.Options.Shell {
		return s.Say("run")
	}
	return s.Say("reserve")
}
