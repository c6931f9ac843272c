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

var (
	_ cluster.DriverHost  = (*Attempt)(nil)
	_ cluster.EndReporter = (*Attempt)(nil)
)

// Attempt is the process of a managed ApplicationMaster: one attempt of its application. OpenAttempt
// returns it.
type Attempt struct {
	site site.Site
	masterContainer
	recovered []byte // the state that an earlier attempt saved; nil if there is none
	store     *hdfs.FS
	log       *slog.Logger

	ctx  context.Context // canceled by stop; ends the goroutines
	stop context.CancelFunc
	work sync.WaitGroup // storeLoop, and the goroutine that connects master
	wake chan struct{}  // capacity 1

	mu         sync.Mutex
	master     *protocol.Master // guarded by mu: nil once register has taken it
	contact    protocol.Contact // guarded by mu
	allocation *allocation      // guarded by mu: nil until allocate
	unsaved                     // guarded by mu
	gone       bool             // guarded by mu: the application has ended, nothing is saved any more
}

// masterContainer is the input of an ApplicationMaster's container.
type masterContainer struct {
	id      *yarnpb.ApplicationId
	number  int32 // of the attempt, from 1 on
	token   credentials.Token
	program cachedFile
	near    map[cluster.ExecutorID]protocol.Locality // for the first attempt
	host    string
	input   []byte
}

// unsaved is the state that is to be written to HDFS for the next attempt.
type unsaved struct {
	state   []byte          // nil if the newest is written
	start   []byte          // the start request of the active run; nil if the newest is written
	saves   int             // number of calls of SaveState and SaveStart
	stored  int             // number of the newest call whose state is on HDFS
	written chan struct{}   // closed and replaced when stored grows
	address string          // "" if it is written
	used    map[string]bool // digests of artifacts that the next attempt may need
}

// OpenAttempt reads the container's input and writes a Hadoop configuration below dir, a folder of the
// container, since nodes may have none; it sets HADOOP_CONF_DIR and HADOOP_USER_NAME. A process calls
// it once, at its start. The caller closes the attempt.
func OpenAttempt(ctx context.Context, dir string, log *slog.Logger) (*Attempt, error) {
	a, err := readAttempt(dir)
	if err != nil {
		return nil, fmt.Errorf("the ApplicationMaster cannot read what it was submitted with: %w", err)
	}
	a.log, a.wake, a.written = log, make(chan struct{}, 1), make(chan struct{})
	a.ctx, a.stop = context.WithCancel(context.Background())
	failed := func(err error) (*Attempt, error) {
		a.closeMaster()
		a.work.Wait()
		return nil, err
	}
	if err := a.connect(); err != nil {
		return failed(err)
	}
	if a.store, err = hdfs.New(hdfs.Config{Conf: a.site.Conf, User: a.site.User, Bridge: outageLimit}); err != nil {
		return failed(err)
	}
	if a.recovered, err = a.readSaved(ctx, stateFile); err != nil {
		return failed(errors.Join(err, a.store.Close()))
	}
	a.work.Go(a.storeLoop)
	return a, nil
}

// connect begins to connect to the ResourceManager, which takes as long as everything else that is done
// before the registration.
func (a *Attempt) connect() error {
	master, err := protocol.NewMaster(a.site.Conf, protocol.State{Token: a.token}, callLimit)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.master = master
	a.mu.Unlock()
	a.work.Go(func() { _ = master.Open(a.ctx) }) // register reports the error
	return nil
}

// closeMaster closes the connection of connect, unless register has taken it.
func (a *Attempt) closeMaster() {
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.master != nil {
		_ = a.master.Close() // nothing was sent
		a.master = nil
	}
}

func readAttempt(dir string) (*Attempt, error) {
	notMaster := errors.New("this process does not run in the container of a managed ApplicationMaster: " +
		"only YARN starts tfcluster appmaster, for reserve --managed")
	tokens := os.Getenv("HADOOP_TOKEN_FILE_LOCATION")
	if tokens == "" {
		return nil, notMaster
	}
	file, err := credentials.Load(tokens)
	if err != nil {
		return nil, fmt.Errorf("find the cluster's request in the ApplicationMaster's container: %w; "+
			"the NodeManager has written that file: its log and its disks show more", err)
	}
	raw, ok := file.Secrets[masterSecret]
	if !ok {
		return nil, notMaster
	}
	var in masterInput
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	a := &Attempt{
		masterContainer: masterContainer{program: in.Program, near: in.Near, input: in.Driver, host: os.Getenv("NM_HOST")},
		unsaved:         unsaved{used: map[string]bool{}},
	}
	for _, t := range file.Tokens {
		if t.Kind == credentials.AMRM {
			a.token = *t
		}
	}
	if len(a.token.Identifier) == 0 {
		return nil, errors.New(
			"YARN gave this container no token for the ResourceManager (AMRM token): see the ResourceManager's log")
	}
	if a.host == "" {
		return nil, errors.New("YARN gave this container no name of its host (NM_HOST): see the NodeManager's log")
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

// writeConf writes a Hadoop configuration file with the given properties.
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

// Input returns the driver's input, and the state that an earlier attempt saved; nil if there is none.
func (a *Attempt) Input() (input, state []byte) { return a.input, a.recovered }

// Host returns this node's name.
func (a *Attempt) Host() string { return a.host }

// Listening sets the address that agents and clients dial, and the URL of the status page. The
// ResourceManager gets both with the registration; agents of an earlier attempt read the address from HDFS.
func (a *Attempt) Listening(address, page string) {
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseInt(port, 10, 32)
	if err != nil || perr != nil {
		panic("not an address: " + address)
	}
	a.mu.Lock()
	a.contact, a.address = protocol.Contact{Host: host, Port: int32(n), Page: page}, address
	a.mu.Unlock()
	a.wakeStore()
}

// folder returns the application's folder on HDFS.
func (a *Attempt) folder() string { return applicationFolder(protocol.ApplicationName(a.id)) }

// recoverLimit bounds the wait for HDFS when an attempt starts.
const recoverLimit = time.Minute

// readSaved reads a file that an earlier attempt saved; nil if there is none.
func (a *Attempt) readSaved(ctx context.Context, name string) ([]byte, error) {
	if a.number == 1 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, recoverLimit)
	defer cancel()
	b, err := a.store.Read(ctx, a.folder()+"/"+name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// OpenArtifact opens an artifact in the cache on HDFS. It returns fs.ErrNotExist if there is none.
func (a *Attempt) OpenArtifact(ctx context.Context, digest string) (io.ReadCloser, error) {
	dir := cacheFolder(digest)
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
	return nil, fmt.Errorf("no file that was submitted with the cluster is in %s on HDFS (something has removed it): %w; "+
		"reserve again", dir, fs.ErrNotExist)
}

// removeLimit bounds the removal of the saved state. The process that submitted the application removes
// it too.
const removeLimit = 5 * time.Second

// removeState removes the saved state: the application needs no other attempt.
func (a *Attempt) removeState(ctx context.Context) {
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
	a.stop()
	a.work.Wait() // no write may follow the removal
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	if err := removeFolder(ctx, a.store, protocol.ApplicationName(a.id)); err != nil {
		a.log.Warn("the saved state of this application could not be removed from HDFS; "+
			"the process that submitted it tries, too", "err", err)
	}
}

// Close stops the goroutines and closes the connections.
func (a *Attempt) Close() error {
	a.closeMaster()
	a.work.Wait()
	return a.store.Close()
}

// register registers this process as the application's master. The response lists the containers of
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

// allocate returns an allocation in this attempt's application. It adopts the containers that earlier
// attempts saved in raw.
func (a *Attempt) allocate(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	old := saved{Program: a.program}
	if raw != nil {
		if err := json.Unmarshal(raw, &old); err != nil {
			return nil, fmt.Errorf("this version of tfcluster cannot read what the last attempt saved of its containers: %w",
				err)
		}
	}
	app, r, err := a.register(ctx)
	if err != nil {
		return nil, err
	}
	all := newAllocation(a.site, req, app, old)
	all.attempt = a
	all.shippedAt = time.Now()
	all.adopt(r)
	a.mu.Lock()
	a.allocation = all
	a.mu.Unlock()
	all.start()
	return all, nil
}
