package yarn

import (
	"cmp"
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
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// masterSecret is the name of a managed ApplicationMaster's input among its container's credentials.
const masterSecret = "tfcluster.appmaster"

// masterInput is that input. It is a secret: it holds the key of the cluster's certificate authority.
type masterInput struct {
	Driver  json.RawMessage   `json:"driver"` // the driver's input
	Conf    map[string]string `json:"conf"`   // properties of the client's configuration, which nodes may not have
	User    string            `json:"user"`
	Program cachedFile        `json:"program"`

	Near map[cluster.ExecutorID]protocol.Locality `json:"near,omitempty"` // for the first attempt
}

// masterProperties are the prefixes of the properties that a managed ApplicationMaster gets from its
// submitter's configuration: those that clients of YARN and HDFS need, and no passwords.
var masterProperties = []string{
	"fs.default", "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.",
	"dfs.data.transfer.", "dfs.encrypt.data.transfer", "yarn.resourcemanager.", "yarn.web-proxy.", "yarn.log-aggregation",
	"yarn.nodemanager.remote-app-log-dir", "hadoop.security.authentication", "hadoop.rpc.protection",
}

// Resources and retries of a managed ApplicationMaster.
const (
	masterMemory      = 1024        // MiB
	masterFailure     = 10 * 60_000 // milliseconds after which a failure no longer counts
	minMasterMemory   = 256         // MiB
	tensorboardMemory = 1024        // more MiB for TensorBoard and the TensorFlow that it imports
)

// The engine options for the container of a managed ApplicationMaster.
const (
	masterMemoryKey = "am-memory" // bytes
	masterCPUsKey   = "am-cpus"
	masterLabelKey  = "am-node-label"
)

// tensorboardKey is the engine option that puts TensorBoard on the page of a managed ApplicationMaster.
const tensorboardKey = "tensorboard"

// sweepLimit bounds a sweep.
const sweepLimit = 5 * time.Second

// Submit submits an application whose ApplicationMaster is the driver, in a container.
func (b *Backend) Submit(ctx context.Context, req cluster.Request, input []byte) (cluster.RemoteDriver, error) {
	s, err := site.Find(req.Reserve)
	if err != nil {
		return nil, err
	}
	app, _, err := submit(ctx, s, req,
		func(c *yarnpb.ApplicationSubmissionContext, app application, program cachedFile) error {
			return describeMaster(c, masterInput{
				Driver: input, Conf: s.Conf.WithPrefix(masterProperties...), User: s.User, Program: program, Near: app.near,
			}, req.Reserve.GetEngine())
		})
	if err != nil {
		return nil, err
	}
	_ = app.nodes.Close() // the ApplicationMaster has its own connections
	h, err := newRemoteDriver(s, app.id, queue(req))
	if err != nil {
		return nil, errors.Join(err, kill(s, app.id))
	}
	_ = h.sweep(ctx) // the next submission does it again
	return h, nil
}

// sweep removes the folders on HDFS of applications that have ended.
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
			continue // not an application's folder
		}
		r, err := h.client.Report(ctx, id)
		if errors.Is(err, protocol.ErrGone) || err == nil && protocol.Ended(r.GetYarnApplicationState()) {
			err = removeFolder(ctx, store, i.Name())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describeMaster adds the ApplicationMaster's container to a submission context, with the size and the node
// label in the engine options, and with memory for TensorBoard if that is requested.
func describeMaster(c *yarnpb.ApplicationSubmissionContext, in masterInput, engine map[string]string) error {
	secret, err := json.Marshal(in)
	if err != nil {
		return errtext.Fault("encode what the ApplicationMaster is submitted with: %w", err)
	}
	resource, err := in.Program.localResource()
	if err != nil {
		return err
	}
	c.UnmanagedAm = new(false)
	// An attempt that fails now and then is always restarted; one that fails at once is not.
	c.MaxAppAttempts, c.AttemptFailuresValidityInterval = new(int32(4)), new(int64(masterFailure))
	memory, vcores, err := masterSize(engine)
	if err != nil {
		return err
	}
	heap := memory / 4 * 3 // above this size Go's heap is collected more often
	if engine[tensorboardKey] != "" {
		memory += tensorboardMemory
	}
	c.Resource = protocol.MemoryAndCores(memory, vcores, nil)
	if label := engine[masterLabelKey]; label != "" { // the submission's own label would apply to every container
		c.AmContainerResourceRequest = []*yarnpb.ResourceRequest{{
			Priority: &yarnpb.Priority{Priority: new(int32(0))}, ResourceName: new("*"), Capability: c.Resource,
			NumContainers: new(int32(1)), RelaxLocality: new(true), NodeLabelExpression: &label,
		}}
	}
	secrets := &credentials.File{Secrets: map[string][]byte{masterSecret: secret}}
	c.AmContainerSpec = &yarnpb.ContainerLaunchContext{
		LocalResources: []*yarnpb.StringLocalResourceMap{{Key: new("tfcluster"), Value: resource}},
		Tokens:         secrets.Encode(),
		Environment:    []*yarnpb.StringStringMap{{Key: new("GOMEMLIMIT"), Value: new(strconv.FormatInt(heap, 10) + "MiB")}},
		Command: []string{
			"echo " + containerlogs.DriverMark + "; exec ./tfcluster appmaster 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr",
		},
	}
	return nil
}

// masterSize returns the memory, in MiB, and the vcores of a managed ApplicationMaster.
func masterSize(engine map[string]string) (memory int64, vcores int32, err error) {
	memory, vcores = masterMemory, 1
	if v := engine[masterMemoryKey]; v != "" {
		bytes, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("--am-memory %s: want a number of bytes", v)
		}
		memory = (bytes + 1<<20 - 1) >> 20
		if memory < minMasterMemory {
			return 0, 0, fmt.Errorf("--am-memory is too small: the ApplicationMaster needs %d MiB at least", minMasterMemory)
		}
	}
	if v := engine[masterCPUsKey]; v != "" {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("--am-cpus %s: want a whole number", v)
		}
		vcores = max(1, int32(n))
	}
	return memory, vcores, nil
}

// Upload stores an artifact in the cache on HDFS.
func (b *Backend) Upload(ctx context.Context, r *clusterpb.ReserveRequest, content *clusterpb.Blob,
	from io.ReadSeeker,
) error {
	s, err := site.Find(r)
	if err != nil {
		return err
	}
	store, err := site.NewHDFS(s)
	if err != nil {
		return err
	}
	defer store.Close()
	_, _, err = upload(ctx, store, content.GetSha256(), content.GetSize(), from)
	return err
}

// savedDriver is the state that another process needs to find a managed ApplicationMaster.
type savedDriver struct {
	Application string `json:"application"`
	Queue       string `json:"queue"`
}

// remoteDriver is a managed ApplicationMaster, seen from outside its container.
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

// Find returns a managed ApplicationMaster that was submitted before, by what Saved returned.
func (b *Backend) Find(r *clusterpb.ReserveRequest, saved []byte) (cluster.RemoteDriver, error) {
	s, err := site.Find(r)
	if err != nil {
		return nil, err
	}
	var old savedDriver
	if err := json.Unmarshal(saved, &old); err != nil {
		return nil, fmt.Errorf(
			"this version of tfcluster cannot read which YARN application the cluster has (%w): reserve again", err)
	}
	id, err := protocol.ParseApplication(old.Application)
	if err != nil {
		return nil, err
	}
	return newRemoteDriver(s, id, old.Queue)
}

// ID returns the application's ID.
func (h *remoteDriver) ID() string { return protocol.ApplicationName(h.id) }

// Saved returns the state with which Find finds the driver in another process.
func (h *remoteDriver) Saved() []byte { return plainJSON(savedDriver{h.ID(), h.queue}) }

// The property with the milliseconds after which YARN replaces an ApplicationMaster that it does not hear from, and its
// default.
const (
	masterExpiry        = "yarn.am.liveness-monitor.expiry-interval-ms"
	defaultMasterExpiry = "600000"
)

// Endpoint returns the address of the application's master and when YARN replaces it, or why there is none yet. It
// returns cluster.ErrEnded if the application has ended.
func (h *remoteDriver) Endpoint(ctx context.Context) (address, waits string, err error) {
	r, err := h.client.Report(ctx, h.id)
	if errors.Is(err, protocol.ErrGone) {
		return "", "", fmt.Errorf("%w: %w", cluster.ErrEnded, err)
	}
	if err != nil {
		return "", "", err
	}
	if state := r.GetYarnApplicationState(); protocol.Ended(state) {
		return "", "", fmt.Errorf("%w: %s is %s: %s", cluster.ErrEnded, h.ID(), strings.ToLower(state.String()),
			containerlogs.MasterError(r.GetDiagnostics()))
	}
	if r.GetRpcPort() > 0 && r.GetHost() != "" && r.GetHost() != "N/A" {
		waits = fmt.Sprintf("YARN gives an ApplicationMaster up after %s (%s ms by this machine's configuration) and starts "+
			"another while its attempts last", masterExpiry, cmp.Or(h.site.Conf.Get(masterExpiry), defaultMasterExpiry))
		return net.JoinHostPort(r.GetHost(), strconv.Itoa(int(r.GetRpcPort()))), waits, nil
	}
	if r.GetYarnApplicationState() == yarnpb.YarnApplicationState_ACCEPTED {
		return "", admissionMessage(h.ID(), h.queue, r.GetDiagnostics()), nil
	}
	return "", h.ID() + " waits for its ApplicationMaster", nil
}

// Kill kills the application and removes its folder on HDFS.
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
	return errors.Join(err, removeFolder(ctx, store, h.ID()))
}

// Close closes the connection; the application goes on.
func (h *remoteDriver) Close() error { return h.client.Close() }

// applicationsDir is a folder below the user's home on HDFS. It holds a folder for each managed application
// that has not ended, and for unmanaged ones whose driver has moved.
const applicationsDir = ".tfcluster/applications"

// Files in an application's folder.
const (
	stateFile   = "state.json" // the driver's state for the next attempt
	startFile   = "start.pb"   // the start request of the active run
	addressFile = "address"    // the driver's address, which agents read
)

// removeFolder removes an application's folder.
func removeFolder(ctx context.Context, store *hdfs.FS, application string) error {
	if err := store.Remove(ctx, applicationFolder(application)); err != nil {
		return fmt.Errorf("remove the folder of %s on HDFS: %w", application, err)
	}
	return nil
}
