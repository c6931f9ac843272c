package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/gpu"
	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/agent/tasklog"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/ship"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// Time limits of the agent.
const (
	defaultHeartbeat = 2 * time.Second
	firstJoin        = 2 * time.Minute // an agent without a welcome until then ends
	orphanTerm       = 5 * time.Second // from SIGTERM to SIGKILL of tasks without a driver
	releaseWait      = time.Second     // for the last lines to be acknowledged at a release
	gpuTimeout       = 20 * time.Second
)

// maxMessage bounds a gRPC message, in bytes.
const maxMessage = clusterpb.MaxAgentMessage

// Agent joins a cluster as one executor and runs its tasks.
type Agent struct {
	// fixed before the first goroutine starts
	cfg    *clusterpb.AgentConfig
	self   self
	log    *slog.Logger
	gpus   heldGPUs
	logs   *tasklog.Shipper
	disk   hostDisk
	python *interpreter.Interpreter
	link   *link
	cancel context.CancelCauseFunc

	work sync.WaitGroup // tasks, ends of runs, heartbeats

	mu sync.Mutex
	// guarded by mu
	runs   map[int32]*run
	port   *heldPort // held between runs
	driver presence
	ended  bool // no task is started any more
}

// self describes an agent in its Hello.
type self struct {
	version, incarnation, host, address string
	fabric                              *clusterpb.Fabric
}

// heldGPUs are the executor's GPUs, or the reason why it has none.
type heldGPUs struct {
	held  *gpu.Held
	meter *gpu.Meter // of held; nil without GPUs
	err   string
}

// hostDisk is the agent's files on this host.
type hostDisk struct {
	blobs   *blobStore
	own     *ownFolder
	files   *ownFiles // nil if the driver's disk is shared
	shipped *shippedFiles
}

// close removes the agent's own files.
func (d *hostDisk) close() {
	if d.files != nil {
		d.files.root.Close()
	}
	d.shipped.close()
	d.own.close()
}

// presence is the state of the connection to the driver and its timeouts. It is guarded by the
// agent's mu.
type presence struct {
	beat      time.Duration
	grace     time.Duration
	idle      time.Duration
	orphan    *time.Timer // runs while no driver is connected
	welcomed  bool
	lastError error
	memory    int64 // bytes of shared memory of each task that is fed; 0: the default
}

// apply sets the timeouts of a Welcome.
func (p *presence) apply(w *clusterpb.Welcome) {
	if ms := w.GetHeartbeatMillis(); ms > 0 {
		p.beat = millis(ms)
	}
	if ms := w.GetOrphanGraceMillis(); ms > 0 {
		p.grace = millis(ms)
	}
	p.idle, p.memory = millis(w.GetIdleMillis()), w.GetFeedMemoryBytes()
}

// Run runs an agent. It returns nil after a release, otherwise the error with which the agent
// ended.
func Run(ctx context.Context, cfg *clusterpb.AgentConfig, version string, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg, err := complete(cfg)
	if err != nil {
		return err
	}
	folders := cfg.GetFolders()
	if folders.GetOwnRuntimeDir() {
		release, err := keepFolder(folders.GetRuntimeDir())
		if err != nil {
			return err
		}
		defer release()
	}
	if folders.GetHostDir() == "" {
		folders.HostDir = folders.GetRuntimeDir()
	} else {
		release, err := keepHostFolder(ctx, folders.GetHostDir())
		if err != nil {
			return err
		}
		defer release()
	}
	a, conns, err := newAgent(ctx, cfg, version, log)
	if err != nil {
		return err
	}
	defer conns.close()
	a.warm(ctx, cfg.GetWarmUp())
	a.cancel = cancel
	a.driver.orphan = time.AfterFunc(firstJoin, func() {
		cancel(firstJoinError(a.self.host, cfg.GetDriver().GetCoordinator(), a.joinError()))
	})
	a.work.Go(func() { a.heartbeats(ctx) })
	a.work.Go(func() { a.gpus.meter.Run(ctx) })
	a.watchOwners(ctx)
	err = a.link.run(ctx)
	cause := context.Cause(ctx)
	a.shutdown(cancel)
	switch {
	case errors.Is(err, errReleased):
		return nil
	case cause != nil:
		return cause
	default:
		return err
	}
}

func newAgent(ctx context.Context, cfg *clusterpb.AgentConfig, version string,
	log *slog.Logger,
) (a *Agent, conns connections, err error) {
	folders, identity := cfg.GetFolders(), cfg.GetIdentity()
	if err := prepareFolder(folders.GetRuntimeDir()); err != nil {
		return nil, conns, fmt.Errorf("make the folder for this executor's sockets: %w", err)
	}
	address := &resolver{file: cfg.GetDriver().GetFind(), address: cfg.GetDriver().GetCoordinator()}
	if conns, err = connect(cfg, address); err != nil {
		return nil, conns, err
	}
	defer func() {
		if err != nil {
			conns.close()
		}
	}()
	incarnation := make([]byte, 8)
	_, _ = rand.Read(incarnation) // never fails
	a = &Agent{
		cfg: cfg, self: self{version: version, incarnation: hex.EncodeToString(incarnation)}, log: log,
		runs: map[int32]*run{}, gpus: heldGPUs{held: &gpu.Held{}},
		driver: presence{
			beat: defaultHeartbeat, grace: millis(cfg.GetTimeouts().GetOrphanGraceMillis()),
			idle: millis(cfg.GetTimeouts().GetIdleMillis()),
		},
	}
	client := clusterpb.NewCoordinatorClient(conns.main)
	a.self.host, a.self.address = hostAndAddress(ctx, cfg)
	a.disk.blobs = &blobStore{dir: filepath.Join(folders.GetRuntimeDir(), "blobs"), client: client, kept: blobsKept}
	a.logs = tasklog.NewShipper(filepath.Join(folders.GetRuntimeDir(), "spool-"+a.self.incarnation))
	a.python = interpreter.New(interpreter.Starter{Dir: folders.GetHostDir()}, log, a.warmed)
	a.disk.shipped = &shippedFiles{blobs: &blobStore{client: client}, host: a.self.host, held: map[string]*os.File{}}
	address.open = a.hdfs
	a.link = &link{
		client: client, feeds: clusterpb.NewFeedsClient(conns.services), groups: clusterpb.NewGroupsClient(conns.services),
		handler: a, logs: a.logs, log: log, wake: make(chan struct{}, 1), resolve: func(ctx context.Context) {
			if address.resolve(ctx) {
				conns.main.ResetConnectBackoff()
				conns.services.ResetConnectBackoff()
			}
		},
	}
	b := &environmentFetcher{
		environments: ship.Environments{Dir: environmentsIn(), Host: a.self.host}, blobs: a.disk.blobs,
		python: cfg.GetPython(), send: a.link.send,
	}
	a.python.Fetch = b.fetch
	if err := a.openFiles(client); err != nil {
		return nil, conns, err
	}
	a.disk.shipped.blobs.dir = filepath.Join(a.disk.own.dir, "given")
	if a.port, err = holdPort(); err != nil {
		return nil, conns, err
	}
	if n := int(cfg.GetGpus().GetCount()); n > 0 {
		limited, cancel := context.WithTimeout(ctx, gpuTimeout)
		defer cancel()
		holder := fmt.Sprintf("executor %s of cluster %s", identity.GetExecutorId(), identity.GetCluster())
		if a.gpus.held, err = gpu.Hold(limited, n, cfg.GetGpus().GetAssigned(), holder); err != nil {
			a.gpus.held, a.gpus.err = &gpu.Held{}, err.Error()
		}
		a.gpus.meter = gpu.NewMeter(a.gpus.held, log)
	}
	a.self.fabric = findFabric(a.self.address, a.gpus.held.GPUs)
	return a, conns, nil
}

// hostAndAddress returns this machine's name to show and the address that other tasks dial: the
// local address of the route to the coordinator.
func hostAndAddress(ctx context.Context, cfg *clusterpb.AgentConfig) (host, address string) {
	host, address = cfg.GetHost(), cfg.GetAddress()
	if host == "" {
		host, _ = os.Hostname()
	}
	if address != "" {
		return host, address
	}
	var d net.Dialer
	// Sends nothing: the kernel looks up the route.
	conn, err := d.DialContext(ctx, "udp", cfg.GetDriver().GetCoordinator())
	if err != nil {
		return host, host
	}
	defer conn.Close()
	return host, conn.LocalAddr().(*net.UDPAddr).IP.String()
}

// shutdown ends all tasks and removes the agent's files.
func (a *Agent) shutdown(cancel context.CancelCauseFunc) {
	a.mu.Lock()
	a.ended = true
	a.driver.orphan.Stop()
	tasks := a.tasks()
	a.mu.Unlock()
	for _, t := range tasks {
		t.signal(sigKill, "the agent ended")
	}
	for _, t := range tasks {
		waitFor(t.done, settlePipes)
		t.services.close()
	}
	cancel(nil)
	a.python.Close()
	a.work.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		r.port.release()
	}
	a.port.release()
	a.gpus.held.Release()
	os.RemoveAll(a.logs.Dir)
	a.disk.close()
}

// hello describes the executor. Caller holds mu.
func (a *Agent) hello() *clusterpb.Hello {
	h := &clusterpb.Hello{
		ExecutorId: a.cfg.GetIdentity().GetExecutorId(), Attempt: a.cfg.GetIdentity().GetAttempt(),
		Incarnation: a.self.incarnation, Host: a.self.host, Address: a.self.address, Version: a.self.version,
		Protocol: clusterpb.Protocol, Pid: int32(os.Getpid()), Gpus: a.gpus.held.GPUs, GpuError: a.gpus.err,
		Cpus: int32(runtime.NumCPU()), MemoryBytes: proc.TotalMemory(), Python: a.python.Describe(),
		OwnDisk: a.disk.files != nil, Fabric: a.self.fabric,
	}
	h.Warmed = h.Python != nil
	if a.port != nil {
		h.Ports = append(h.Ports, a.port.port)
	}
	for _, r := range a.runs {
		if r.port != nil {
			h.Ports = append(h.Ports, r.port.port)
		}
		for _, t := range r.tasks {
			if pid := t.pid(); pid != 0 {
				h.Tasks = append(h.Tasks, &clusterpb.RunningTask{
					Run: t.launch.GetRun(), Attempt: t.launch.GetAttempt(), Task: t.launch.GetTask(), Pid: int32(pid),
				})
			}
		}
	}
	return h
}

// warmed reports that Python is ready, or why it is not. It holds mu so that the message is in
// the Hello or on its stream.
func (a *Agent) warmed(p *clusterpb.Python) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Warmed{Warmed: &clusterpb.Warmed{Python: p}}})
}

// errNoAnswer is the state of an agent that is connected and waits for the driver's answer.
var errNoAnswer = errors.New("no answer")

// firstJoinError returns the error for an agent whose driver has not answered within firstJoin.
func firstJoinError(host, address string, err error) error {
	if errors.Is(err, errNoAnswer) {
		return fmt.Errorf("%s connected to the cluster's driver at %s, which did not answer within %v: "+
			"the driver is stopped or waits for a disk; its driver.log shows what it did last", host, address, firstJoin)
	}
	return fmt.Errorf("%s could not connect to the cluster's driver at %s within %v: %w; each executor must be able to "+
		"connect to that address: set another one with reserve --advertise HOST", host, address, firstJoin, err)
}

func (a *Agent) joinError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cmp.Or(a.driver.lastError, errNoAnswer)
}
