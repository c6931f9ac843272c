package yarn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// masterSecret names what a managed ApplicationMaster reads among its container's
// credentials.
const masterSecret = "tfcluster.appmaster"

// masterInput is that: it holds the key of the cluster's authority.
type masterInput struct {
	Driver  json.RawMessage   `json:"driver"` // what the driver reads
	Conf    map[string]string `json:"conf"`   // nodes need not have a configuration of clients
	User    string            `json:"user"`
	Program shipped           `json:"program"`

	Near map[cluster.ExecutorID]protocol.Spot `json:"near,omitempty"` // of the first attempt
}

// masterNeeds begin the names of the properties that a managed ApplicationMaster has of
// its submitter's configuration: those of clients of YARN and HDFS, and no passwords.
var masterNeeds = []string{
	"fs.default", "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.", "dfs.data.transfer.", "dfs.encrypt.data.transfer",
	"yarn.resourcemanager.", "yarn.web-proxy.", "yarn.log-aggregation", "yarn.nodemanager.remote-app-log-dir", "hadoop.security.authentication", "hadoop.rpc.protection",
}

// The container of a managed ApplicationMaster.
const (
	masterMemory  = 1024        // MiB
	masterLimit   = "768"       // of its heap, after which it collects harder
	masterFailure = 10 * 60_000 // milliseconds for which a failure counts
	boardMemory   = 1024        // MiB more for TensorBoard, with the TensorFlow that it imports where there is one
)

// engineBoard is the key of a request that wants TensorBoard on the page of a managed
// ApplicationMaster, as magics writes it.
const engineBoard = "tensorboard"

// sweepLimit bounds a look for what was left.
const sweepLimit = 5 * time.Second

// Submit submits an application whose ApplicationMaster is a driver in a container.
func (b *Backend) Submit(ctx context.Context, req cluster.Request, input []byte) (cluster.RemoteDriver, error) {
	s, err := site.Find(req.Reserve)
	if err != nil {
		return nil, err
	}
	app, _, err := submit(ctx, s, req, func(c *yarnpb.ApplicationSubmissionContext, app application, program shipped) error {
		return describeMaster(c, masterInput{Driver: input, Conf: s.Conf.Some(masterNeeds...), User: s.User, Program: program, Near: app.near}, req.Reserve.GetEngine()[engineBoard] != "")
	})
	if err != nil {
		return nil, err
	}
	_ = app.nodes.Close() // the ApplicationMaster's are its own
	h, err := newRemoteDriver(s, app.id, queue(req))
	if err != nil {
		return nil, errors.Join(err, kill(s, app.id))
	}
	_ = h.sweep(ctx) // another submission does it
	return h, nil
}

// sweep removes what applications kept on HDFS that ended while nobody looked.
func (h *remoteDriver) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	store, err := site.NewHDFS(h.site)
	if err != nil {
		return err
	}
	defer store.Close()
	infos, err := store.List(ctx, applicationsDir)
	if err != nil {
		return err
	}
	for _, i := range infos {
		id, err := protocol.ParseApplication(i.Name())
		if err != nil {
			continue // it is none of ours
		}
		r, err := h.client.Report(ctx, id)
		if errors.Is(err, protocol.ErrGone) || err == nil && protocol.Ended(r.GetYarnApplicationState()) {
			err = forget(ctx, store, i.Name())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describeMaster makes a submission one with a container for its ApplicationMaster, and
// for a TensorBoard beside it.
func describeMaster(c *yarnpb.ApplicationSubmissionContext, in masterInput, board bool) error {
	secret, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the ApplicationMaster's input: %w", err)
	}
	resource, err := in.Program.resource()
	if err != nil {
		return err
	}
	c.UnmanagedAm = new(false)
	// One that dies now and then is started again for ever; one that dies at once is not.
	c.MaxAppAttempts, c.AttemptFailuresValidityInterval = new(int32(4)), new(int64(masterFailure))
	c.Resource = protocol.MemoryAndCores(masterMemory, 1, nil)
	if board {
		c.Resource = protocol.MemoryAndCores(masterMemory+boardMemory, 1, nil)
	}
	secrets := &credentials.File{Secrets: map[string][]byte{masterSecret: secret}}
	c.AmContainerSpec = &yarnpb.ContainerLaunchContext{
		LocalResources: []*yarnpb.StringLocalResourceMap{{Key: new("tfcluster"), Value: resource}},
		Tokens:         secrets.Encode(),
		Environment:    []*yarnpb.StringStringMap{{Key: new("GOMEMLIMIT"), Value: new(masterLimit + "MiB")}},
		Command:        []string{"echo " + containerlogs.DriverMark + "; exec ./tfcluster appmaster 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"},
	}
	return nil
}

// Upload puts a content into the cache on HDFS.
func (b *Backend) Upload(ctx context.Context, r *clusterpb.ReserveRequest, content *clusterpb.Blob, from io.ReadSeeker) error {
	s, err := site.Find(r)
	if err != nil {
		return err
	}
	store, err := site.NewHDFS(s)
	if err != nil {
		return err
	}
	defer store.Close()
	_, _, err = put(ctx, store, content.GetSha256(), content.GetSize(), from)
	return err
}

// savedDriver is what another process needs to find a managed ApplicationMaster.
type savedDriver struct {
	Application string `json:"application"`
	Queue       string `json:"queue"`
}

// remoteDriver is a managed ApplicationMaster as its submitter sees it.
type remoteDriver struct {
	site   site.Site
	id     *yarnpb.ApplicationId
	queue  string
	client *protocol.Client
}

func newRemoteDriver(s site.Site, id *yarnpb.ApplicationId, queue string) (*remoteDriver, error) {
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return nil, err
	}
	return &remoteDriver{site: s, id: id, queue: queue, client: client}, nil
}

// Find takes up a managed ApplicationMaster that was submitted.
func (b *Backend) Find(r *clusterpb.ReserveRequest, saved []byte) (cluster.RemoteDriver, error) {
	s, err := site.Find(r)
	if err != nil {
		return nil, err
	}
	var old savedDriver
	if err := json.Unmarshal(saved, &old); err != nil {
		return nil, fmt.Errorf("read which application the cluster is: %w", err)
	}
	id, err := protocol.ParseApplication(old.Application)
	if err != nil {
		return nil, err
	}
	return newRemoteDriver(s, id, old.Queue)
}

// ID is the application's name.
func (h *remoteDriver) ID() string { return protocol.ApplicationName(h.id) }

// Saved is for another process.
func (h *remoteDriver) Saved() []byte {
	b, err := json.Marshal(savedDriver{h.ID(), h.queue})
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Endpoint asks for the application's master.
func (h *remoteDriver) Endpoint(ctx context.Context) (address, waits string, err error) {
	r, err := h.client.Report(ctx, h.id)
	if errors.Is(err, protocol.ErrGone) {
		return "", "", fmt.Errorf("%w: %w", cluster.ErrEnded, err)
	}
	if err != nil {
		return "", "", err
	}
	if state := r.GetYarnApplicationState(); protocol.Ended(state) {
		return "", "", fmt.Errorf("%w: %s is %s: %s", cluster.ErrEnded, h.ID(), strings.ToLower(state.String()), containerlogs.MasterError(r.GetDiagnostics()))
	}
	if r.GetRpcPort() > 0 && r.GetHost() != "" && r.GetHost() != "N/A" {
		return net.JoinHostPort(r.GetHost(), strconv.Itoa(int(r.GetRpcPort()))), "", nil
	}
	if r.GetYarnApplicationState() == yarnpb.YarnApplicationState_ACCEPTED {
		return "", admissionWords(h.ID(), h.queue, r.GetDiagnostics()), nil
	}
	return "", h.ID() + " awaits its ApplicationMaster", nil
}

// Kill kills the application and removes what it kept on HDFS.
func (h *remoteDriver) Kill(ctx context.Context) error {
	err := h.client.Kill(ctx, h.id, "the cluster was shut down")
	if errors.Is(err, protocol.ErrGone) {
		err = nil
	}
	store, serr := site.NewHDFS(h.site)
	if serr != nil {
		return errors.Join(err, serr)
	}
	defer store.Close()
	return errors.Join(err, forget(ctx, store, h.ID()))
}

// Close ends the connection; the application goes on.
func (h *remoteDriver) Close() error { return h.client.Close() }

// applicationsDir is below the user's home on HDFS. It holds a folder for each managed
// application, as long as it lives.
const applicationsDir = ".tfcluster/applications"

// Files of that folder.
const (
	stateFile   = "state.json" // what the next attempt has to know
	startFile   = "start.pb"   // how the active run was started
	addressFile = "address"    // where agents find the present one
)

// forget removes an application's folder.
func forget(ctx context.Context, store *hdfs.FS, application string) error {
	if err := store.Remove(ctx, applicationsDir+"/"+application); err != nil {
		return fmt.Errorf("remove what %s kept: %w", application, err)
	}
	return nil
}
