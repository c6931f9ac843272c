package yarn

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

var _ cluster.DriverHost = (*Attempt)(nil)

// Attempt is a managed ApplicationMaster's process: one attempt of its application,
// which an earlier one's may have preceded. TakeAttempt makes it.
type Attempt struct {
	site site.Site
	masterContainer
	earlier []byte // what an earlier attempt kept; nil: there is nothing
	store   *hdfs.FS
	log     *slog.Logger

	ctx     context.Context // of the goroutines
	stop    context.CancelFunc
	keeping sync.WaitGroup // the keeper, and whoever opens master
	wake    chan struct{}  // capacity 1

	mu      sync.Mutex
	master  *protocol.Master // guarded by mu: for register, which takes it; nil then
	contact protocol.Contact // guarded by mu
	all     *allocation      // guarded by mu: nil before there is one
	pending                  // guarded by mu
	gone    bool             // guarded by mu: the application has ended, nothing is kept any more
}

// masterContainer is what an ApplicationMaster's container was given.
type masterContainer struct {
	id      *yarnpb.ApplicationId
	number  int32 // of the attempt, from 1 on
	token   credentials.Token
	program shipped
	near    map[cluster.ExecutorID]protocol.Spot // for a first attempt
	host    string
	input   []byte
}

// pending is what is to be kept for the next attempt.
type pending struct {
	state   []byte          // nil: nothing new
	start   []byte          // nil: nothing new
	given   int             // how many states and starts there were
	kept    int             // how many of them are kept, or a newer one is
	written chan struct{}   // closed when kept grows, and another made
	address string          // "": nothing new
	used    map[string]bool // digests of contents that the next attempt may need
}

// TakeAttempt reads what the container was given, and makes below dir, a folder of the
// container's own, a Hadoop configuration, to which it sets the environment: a node
// need not have one. Close ends it. A process calls it once, at its beginning.
func TakeAttempt(ctx context.Context, dir string, log *slog.Logger) (*Attempt, error) {
	a, err := readAttempt(dir)
	if err != nil {
		return nil, fmt.Errorf("take up this container: %w", err)
	}
	a.log, a.wake, a.written = log, make(chan struct{}, 1), make(chan struct{})
	a.ctx, a.stop = context.WithCancel(context.Background())
	if err := a.open(); err != nil {
		return nil, err
	}
	if a.store, err = hdfs.New(hdfs.Config{Conf: a.site.Conf, User: a.site.User, Bridge: bridgeLimit}); err != nil {
		a.closeMaster()
		return nil, err
	}
	if err := a.recall(ctx); err != nil {
		a.closeMaster()
		return nil, errors.Join(err, a.store.Close())
	}
	a.keeping.Go(a.keep)
	return a, nil
}

// open begins to connect to the ResourceManager, which takes as long as all else that is
// done before the registration.
func (a *Attempt) open() error {
	master, err := protocol.NewMaster(a.site.Conf, protocol.State{Token: a.token}, callLimit)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.master = master
	a.mu.Unlock()
	a.keeping.Go(func() { _ = master.Open(a.ctx) }) // what stands in its way register tells
	return nil
}

// closeMaster ends what open began, where register has not taken it.
func (a *Attempt) closeMaster() {
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.master != nil {
		_ = a.master.Close() // nothing was said by it
		a.master = nil
	}
}

func readAttempt(dir string) (*Attempt, error) {
	file, err := credentials.Load(os.Getenv("HADOOP_TOKEN_FILE_LOCATION"))
	if err != nil {
		return nil, err
	}
	raw, ok := file.Secrets[masterSecret]
	if !ok {
		return nil, errors.New("it is none of a managed ApplicationMaster's")
	}
	var in masterInput
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	a := &Attempt{
		masterContainer: masterContainer{program: in.Program, near: in.Near, input: in.Driver, host: os.Getenv("NM_HOST")},
		pending:         pending{used: map[string]bool{}},
	}
	for _, t := range file.Tokens {
		if t.Kind == credentials.AMRM {
			a.token = *t
		}
	}
	if len(a.token.Identifier) == 0 || a.host == "" {
		return nil, errors.New("YARN gave it no token, or no NM_HOST")
	}
	if a.id, a.number, err = protocol.ParseContainer(os.Getenv("CONTAINER_ID")); err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "hadoop-conf")
	if err := writeConf(conf, in.Conf); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"HADOOP_CONF_DIR": conf, "HADOOP_USER_NAME": in.User} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	a.site.User = in.User
	a.site.Conf, err = hadoopconf.Load(conf)
	return a, err
}

// writeConf writes a Hadoop configuration.
func writeConf(dir string, properties map[string]string) error {
	type property struct {
		Name  string `xml:"name"`
		Value string `xml:"value"`
	}
	var list struct {
		XMLName  xml.Name   `xml:"configuration"`
		Property []property `xml:"property"`
	}
	for name, value := range properties {
		list.Property = append(list.Property, property{name, value})
	}
	b, err := xml.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "core-site.xml"), b, 0o600)
}

// Input is what the driver reads, with what an earlier attempt's kept of its state; nil
// if there was none.
func (a *Attempt) Input() (input, state []byte) { return a.input, a.earlier }

// Host is this node's name.
func (a *Attempt) Host() string { return a.host }

// Listening says where agents and clients dial, and where the page is. The
// ResourceManager is told at the registration, agents that an earlier attempt started
// look it up on HDFS.
func (a *Attempt) Listening(address, page string) {
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseInt(port, 10, 32)
	if err != nil || perr != nil {
		panic("no address: " + address)
	}
	a.mu.Lock()
	a.contact, a.address = protocol.Contact{Host: host, Port: int32(n), Page: page}, address
	a.mu.Unlock()
	a.rouse()
}

// folder is the application's on HDFS.
func (a *Attempt) folder() string { return folderOn(protocol.ApplicationName(a.id)) }

// recallLimit is how long HDFS may take at an attempt's beginning.
const recallLimit = time.Minute

// recall reads what an earlier attempt kept.
func (a *Attempt) recall(ctx context.Context) error {
	if a.number == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	b, err := a.store.Read(ctx, a.folder()+"/"+stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	a.earlier = b
	return nil
}

// OpenArtifact opens a content that lies in the cache on HDFS.
func (a *Attempt) OpenArtifact(ctx context.Context, digest string) (io.ReadCloser, error) {
	dir := folderOf(digest)
	infos, err := a.store.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		if i.IsDir() {
			continue
		}
		a.mu.Lock()
		a.used[digest] = true
		a.mu.Unlock()
		return a.store.Open(ctx, dir+"/"+i.Name())
	}
	return nil, fmt.Errorf("nothing is in %s: %w", dir, fs.ErrNotExist)
}

// endedLimit bounds the removal of what was kept; whoever submitted the application does
// it too.
const endedLimit = 5 * time.Second

// ended removes what was kept: the application needs no other attempt.
func (a *Attempt) ended(ctx context.Context) {
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
	a.stop()
	a.keeping.Wait() // no write is under way any more
	ctx, cancel := context.WithTimeout(ctx, endedLimit)
	defer cancel()
	if err := forget(ctx, a.store, protocol.ApplicationName(a.id)); err != nil {
		a.log.Warn("what this application kept is not removed", "err", err)
	}
}

// Close ends what goes on behind.
func (a *Attempt) Close() error {
	a.closeMaster()
	a.keeping.Wait()
	return a.store.Close()
}

// register makes this process the application's master, which has the containers of
// earlier attempts.
func (a *Attempt) register(ctx context.Context) (application, *yarnpb.RegisterApplicationMasterResponse, error) {
	a.mu.Lock()
	contact, master := a.contact, a.master
	a.master = nil
	a.mu.Unlock()
	if master == nil {
		var err error
		if master, err = protocol.NewMaster(a.site.Conf, protocol.State{Token: a.token}, callLimit); err != nil {
			return application{}, nil, err
		}
	}
	r, err := register(ctx, master, contact)
	if err != nil {
		return application{}, nil, errors.Join(err, master.Close())
	}
	app := application{id: a.id, master: master, nodes: protocol.NewNodes(a.site.Conf, nodeLimit)}
	if a.number == 1 {
		app.near = a.near
	}
	return app, r, nil
}

// take has an allocation in this attempt's application. Of earlier attempts' containers
// it takes those that were saved.
func (a *Attempt) take(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	old := saved{Program: a.program}
	if raw != nil {
		if err := json.Unmarshal(raw, &old); err != nil {
			return nil, fmt.Errorf("read what the last attempt saved of its containers: %w", err)
		}
	}
	app, r, err := a.register(ctx)
	if err != nil {
		return nil, err
	}
	all := newAllocation(a.site, req, app, old)
	all.attempt = a
	all.shipped = time.Now()
	all.adopt(r)
	a.mu.Lock()
	a.all = all
	a.mu.Unlock()
	all.begin()
	return all, nil
}
