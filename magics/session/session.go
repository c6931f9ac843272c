package session

import (
	"context"
	"fmt"
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

// Connector finds and starts clusters. Connections that implement io.Closer are
// closed when the session lets go of them.
type Connector interface {
	// Launch starts a driver for the request.
	Launch(ctx context.Context, req *clusterpb.ReserveRequest) (name string, c clusterpb.ControlClient, err error)
	// Dial connects to a live driver.
	Dial(ctx context.Context, name string) (clusterpb.ControlClient, error)
	// List names every cluster of this user on this host, oldest first.
	List(ctx context.Context) ([]ClusterInfo, error)
	// Recover starts a new driver for a cluster whose driver died, or dials it.
	Recover(ctx context.Context, name string) (clusterpb.ControlClient, error)
	// Kill ends the process of a driver that does not answer. The cluster is not released.
	Kill(ctx context.Context, name string) error
}

// ClusterInfo is what is known of a cluster without asking its driver.
type ClusterInfo struct {
	Name    string    `json:"name"`
	Backend string    `json:"backend"`
	Owner   string    `json:"owner"`
	Dir     string    `json:"dir"`
	Live    bool      `json:"live"`       // its driver lives
	Hosted  bool      `json:"hosted"`     // its engine runs its driver: Dial finds it
	PID     int       `json:"driver_pid"` // of its driver, or of the proxy of a hosted one
	Stopped bool      `json:"stopped"`    // that process is stopped by a signal
	Since   time.Time `json:"since"`
	Note    string    `json:"note"`
}

// Options is what a session is given; it is not changed later.
type Options struct {
	Connector Connector
	// Owner is the kernel's connection file name: clusters reserved under it are
	// taken up again by the next kernel with that name. "" on the command line.
	Owner string
	// Client names this session among those who hold a cluster.
	Client string
	// Python is the interpreter of the notebook's cells, and of tasks unless told
	// otherwise.
	Python string
	// TensorBoardPython has tensorboard.
	TensorBoardPython string
	// WorkingDir is where relative paths start when Python cannot say; default: the
	// process's.
	WorkingDir string
	Version    string
	// Inventory lists this machine's GPUs; nil where that is not known.
	Inventory func(context.Context) ([]*clusterpb.GPU, error)
	// Engines are those that --backend names.
	Engines cluster.Engines
	// Archive is what is left of clusters that are over; may be nil.
	Archive Archive
	// Patience is how long a driver may send nothing of a run before it is asked whether it is
	// there; 0: 10 s.
	Patience time.Duration
	// Shell: the command line, with its verbs and without %tfcluster in front of them.
	Shell bool
}

// State is what a notebook keeps: the clusters it is attached to, the last one, and who it is.
// Its methods may be called from any goroutine.
type State struct {
	// static after construction
	Options Options
	ctx     context.Context // ends with Close; holds' streams live in it
	end     context.CancelFunc
	holds   sync.WaitGroup
	comms   comms
	began   chan struct{} // closed when the clusters of the last kernel are attached

	mu sync.Mutex
	// guarded by mu
	clusters  map[string]*Handle
	used      []string // clusters, the last used one last
	announce  string
	submitted map[string]*Submission // last start, by cluster: what wait and history call it
}

// NewState makes a session's state. With an owner it takes up, in the background, the
// clusters that the last kernel of that name left; Close ends it.
func NewState(ctx context.Context, opt Options) *State {
	ctx, end := context.WithCancel(ctx)
	s := &State{
		Options: opt, ctx: ctx, end: end, began: make(chan struct{}),
		comms: comms{boards: map[string]Board{}}, clusters: map[string]*Handle{}, submitted: map[string]*Submission{},
	}
	if opt.Owner == "" {
		close(s.began)
		return s
	}
	s.holds.Go(func() {
		defer close(s.began)
		s.takeUp(ctx)
	})
	return s
}

// Close lets go of every cluster, without releasing any, and waits for what the
// session started.
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

// adopt keeps a cluster that the session has reserved or taken up, and holds it.
func (s *State) adopt(name string, client clusterpb.ControlClient, owned bool) *Handle {
	m := s.keep(name, client, owned)
	m.Hold()
	return m
}

// keep keeps a connection to a cluster.
func (s *State) keep(name string, client clusterpb.ControlClient, owned bool) *Handle {
	ctx, drop := context.WithCancel(s.ctx)
	m := &Handle{Name: name, Client: client, State: s, owned: owned, drop: drop}
	m.open = func() { s.holds.Go(func() { hold(ctx, client, s.Options.Client) }) }
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

// Forget lets go of a cluster that is over.
func (s *State) Forget(name string) {
	s.mu.Lock()
	m := s.clusters[name]
	delete(s.clusters, name)
	s.used = slices.DeleteFunc(s.used, func(n string) bool { return n == name })
	s.mu.Unlock()
	s.comms.forget(name)
	if m != nil {
		m.close()
	}
}

// Find is the cluster of that name if the session holds it, else nil.
func (s *State) Find(name string) *Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[name]
}

// LastName is the cluster that a command without -c means; "" if there is none.
func (s *State) LastName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) == 0 {
		return ""
	}
	return s.used[len(s.used)-1]
}

// use makes a cluster the one that a command without -c means. Caller holds mu.
func (s *State) use(name string) {
	s.used = append(slices.DeleteFunc(s.used, func(n string) bool { return n == name }), name)
}

// Prefer makes a cluster the one that a command without -c means. Where it is owned, it ends with
// the session.
func (s *State) Prefer(m *Handle, owned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(m.Name)
	m.owned = m.owned || owned
}

// Context ends when the session lets go of its clusters.
func (s *State) Context() context.Context { return s.ctx }

// Pick finds the cluster a command means: -c, else the last one, else the only
// live one.
func (s *State) Pick(ctx context.Context, c *command.Command) (*Handle, error) {
	name := c.Text("cluster")
	if name == "" {
		name = s.LastName()
	}
	if name != "" {
		return s.Reach(ctx, name)
	}
	infos, err := s.Options.Connector.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("find clusters: %w", err)
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
		return nil, &result.ClusterError{Text: "no live cluster; the driver of " + strings.Join(dead, ", ") + " died", Remedy: s.Say("attach "+dead[len(dead)-1]) + " takes it up again"}
	}
	if p := s.lastOwn(); p != nil {
		return nil, (Connection{Cluster: p.Name, Err: os.ErrNotExist, Record: p}).explain(s.Say, s.maker())
	}
	return nil, &result.ClusterError{Text: "there is no cluster", Remedy: s.maker() + " makes one"}
}

// Reach gives the member of that name, dialling it where the session has none yet.
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

// How long a driver may take.
const (
	dialTimeout    = 10 * time.Second
	AnswerTimeout  = 15 * time.Second // a question to a live driver
	RecoverTimeout = 30 * time.Second
	quickTimeout   = 2 * time.Second // what is shown if it comes in time
)

// Names lists the clusters for completion: the session's first.
func (s *State) Names(ctx context.Context) []string {
	s.mu.Lock()
	var names []string
	for n := range s.clusters {
		names = append(names, n)
	}
	s.mu.Unlock()
	slices.Sort(names)
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

// Say writes a command as this session's user types it.
func (s *State) Say(words string) string {
	if s.Options.Shell {
		return "tfcluster " + words
	}
	return "%tfcluster " + words
}

// maker is the verb that reserves: the command line has no reserve.
func (s *State) maker() string {
	if s.Options.Shell {
		return s.Say("run")
	}
	return s.Say("reserve")
}
