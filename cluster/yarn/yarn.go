package yarn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Backend reserves containers of the YARN that HADOOP_CONF_DIR tells of.
type Backend struct{}

var _ cluster.Backend = (*Backend)(nil)

// Times of a call. A ResourceManager that is restarted is away for a while; a master
// that is away for longer than YARN's expiry is gone.
const (
	reachLimit  = 5 * time.Second // before anything is reserved
	bridgeLimit = 5 * time.Minute
	startLimit  = 2 * time.Minute // to start an agent's container
)

// site is the YARN of the environment.
type site struct {
	conf *hadoopconf.Conf
	user string
}

func findSite() (site, error) {
	conf, err := hadoopconf.FromEnvironment()
	if err != nil {
		return site{}, err
	}
	user, err := hadoopconf.User()
	return site{conf, user}, err
}

// Allocate checks what is asked for, submits an application and asks for a container
// for each executor.
func (b *Backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	s, err := findSite()
	if err != nil {
		return nil, err
	}
	return allocate(ctx, s, req, nil)
}

// allocate begins an application. Its executors' attempts follow those of an older one.
func allocate(ctx context.Context, s site, req cluster.Request, old map[cluster.ExecutorID]savedExecutor) (cluster.Allocation, error) {
	client, err := protocol.NewClient(s.conf, s.user, reachLimit)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	id, most, err := client.NewApplication(ctx)
	if err != nil {
		return nil, err
	}
	if err := check(ctx, client, req, most); err != nil {
		return nil, err
	}
	program, err := ship(ctx, s, req.Program)
	if err != nil {
		return nil, err
	}
	submission, err := describe(id, req)
	if err != nil {
		return nil, err
	}
	if err := client.Submit(ctx, submission); err != nil {
		return nil, err
	}
	state, err := client.AwaitMasterToken(ctx, id, nil)
	if err != nil {
		return nil, errors.Join(err, giveUp(s, id))
	}
	a, err := newAllocation(s, req, saved{Application: protocol.ApplicationName(id), State: state, Program: program, Executors: old})
	if err != nil {
		return nil, errors.Join(err, giveUp(s, id))
	}
	if _, err := a.master.Register(ctx, ""); err != nil {
		return nil, errors.Join(err, a.Release(context.WithoutCancel(ctx)))
	}
	for _, e := range req.Executors {
		a.want(e.ID)
	}
	a.begin()
	return a, nil
}

// giveUp ends an application that nothing came of.
func giveUp(s site, id *yarnpb.ApplicationId) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*reachLimit)
	defer cancel()
	client, err := protocol.NewClient(s.conf, s.user, reachLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Kill(ctx, id, "the reservation was given up")
}

// Recover registers again as the master of a dead driver's application and takes back
// what lives of its containers; the others are asked for anew. Where that application
// has ended it begins another.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	s, err := findSite()
	if err != nil {
		return nil, err
	}
	var old saved
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("read what the last driver saved of its containers: %w", err)
	}
	if old.Application == "" {
		return allocate(ctx, s, req, nil)
	}
	a, err := newAllocation(s, req, old)
	if err != nil {
		return nil, err
	}
	r, err := a.master.Register(ctx, "")
	if errors.Is(err, protocol.ErrGone) || errors.Is(err, protocol.ErrRegistered) {
		if err := a.Release(ctx); err != nil {
			return nil, err
		}
		return allocate(ctx, s, req, old.Executors)
	} else if err != nil {
		return nil, err
	}
	a.adopt(r)
	a.begin()
	return a, nil
}

// describe makes the application's submission.
func describe(id *yarnpb.ApplicationId, req cluster.Request) (*yarnpb.ApplicationSubmissionContext, error) {
	engine := req.Reserve.GetEngine()
	priority := 0
	if p := engine["priority"]; p != "" {
		var err error
		if priority, err = strconv.Atoi(p); err != nil {
			return nil, fmt.Errorf("--priority %s: %w", p, err)
		}
	}
	var tags []string
	for tag := range strings.SplitSeq(engine["tags"], ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return &yarnpb.ApplicationSubmissionContext{
		ApplicationId: id, ApplicationName: new("tfcluster " + req.Cluster), ApplicationType: new("TFCLUSTER"), ApplicationTags: tags,
		Queue: new(queue(req)), Priority: &yarnpb.Priority{Priority: new(int32(priority))},
		UnmanagedAm: new(true), KeepContainersAcrossApplicationAttempts: new(true), MaxAppAttempts: new(int32(1)),
		AmContainerSpec: &yarnpb.ContainerLaunchContext{}, Resource: protocol.MemoryAndCores(1, 1, nil),
	}, nil
}

// queue is the one asked for, or YARN's default.
func queue(req cluster.Request) string {
	if q := req.Reserve.GetEngine()["queue"]; q != "" {
		return q
	}
	return "default"
}

// newHDFS is for what is shipped.
func newHDFS(s site) (*hdfs.FS, error) {
	return hdfs.New(hdfs.Config{Conf: s.conf, User: s.user, Bridge: reachLimit})
}
