package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Client does what a user may with the ResourceManager. It may be used from any
// goroutine.
type Client struct {
	ipc *ipc.Client
}

// NewClient is a Client of the configuration's ResourceManager, which it tries to reach
// for bridge.
func NewClient(conf *hadoopconf.Conf, user string, bridge time.Duration) (*Client, error) {
	if conf.Get("hadoop.security.authentication") == "kerberos" {
		return nil, errors.New("YARN asks for Kerberos (hadoop.security.authentication), which tfcluster does not know yet")
	}
	at, err := addresses(conf, clientService)
	if err != nil {
		return nil, err
	}
	return &Client{ipc: ipc.NewClient(at, bridge, ipc.Config{Protocol: clientService.protocol, User: user, Protections: protections(conf)})}, nil
}

// Close ends the calls that wait, and the connection.
func (c *Client) Close() error { return c.ipc.Close() }

// call makes a call that has a response of its type.
func call[Q, R proto.Message](ctx context.Context, c *ipc.Client, method string, request Q, response R) (R, error) {
	return response, c.Call(ctx, method, request, response)
}

// NewApplication gives a name for an application, and the most that a container may
// have.
func (c *Client) NewApplication(ctx context.Context) (*yarnpb.ApplicationId, *yarnpb.Resource, error) {
	r, err := call(ctx, c.ipc, "getNewApplication", &yarnpb.GetNewApplicationRequest{}, &yarnpb.GetNewApplicationResponse{})
	return r.GetApplicationId(), r.GetMaximumCapability(), explain("ask YARN for a new application", err)
}

// Submit submits an application under the name it holds. Once more is as good.
func (c *Client) Submit(ctx context.Context, s *yarnpb.ApplicationSubmissionContext) error {
	_, err := call(ctx, c.ipc, "submitApplication", &yarnpb.SubmitApplicationRequest{ApplicationSubmissionContext: s}, &yarnpb.SubmitApplicationResponse{})
	return explain("submit "+ApplicationName(s.GetApplicationId())+" to queue "+s.GetQueue(), err)
}

// Report tells how an application is.
func (c *Client) Report(ctx context.Context, id *yarnpb.ApplicationId) (*yarnpb.ApplicationReport, error) {
	r, err := call(ctx, c.ipc, "getApplicationReport", &yarnpb.GetApplicationReportRequest{ApplicationId: id}, &yarnpb.GetApplicationReportResponse{})
	return r.GetApplicationReport(), explain("ask for "+ApplicationName(id), err)
}

// Ended says that a state is an application's last.
func Ended(s yarnpb.YarnApplicationState) bool {
	return s == yarnpb.YarnApplicationState_FINISHED || s == yarnpb.YarnApplicationState_FAILED || s == yarnpb.YarnApplicationState_KILLED
}

// poll is how often an application is asked for while it is waited for.
const poll = 20 * time.Millisecond

// Await asks for an application until it is as wanted, or has ended, which is an error
// that tells why. It calls waiting, if it is not nil, with each report before.
func (c *Client) Await(ctx context.Context, id *yarnpb.ApplicationId, wanted func(*yarnpb.ApplicationReport) bool, waiting func(*yarnpb.ApplicationReport)) (*yarnpb.ApplicationReport, error) {
	pause := poll
	for {
		r, err := c.Report(ctx, id)
		if err != nil {
			return nil, err
		}
		if wanted(r) {
			return r, nil
		}
		if Ended(r.GetYarnApplicationState()) {
			return nil, ended(r)
		}
		if waiting != nil {
			waiting(r)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s, which is %s: %w", ApplicationName(id), r.GetYarnApplicationState(), context.Cause(ctx))
		case <-time.After(pause):
			pause = min(pause*3/2, time.Second)
		}
	}
}

// ended tells why an application has ended.
func ended(r *yarnpb.ApplicationReport) error {
	is := refusal("", r.GetDiagnostics())
	if is == nil {
		is = ErrGone
	}
	why, _, _ := strings.Cut(strings.TrimSpace(r.GetDiagnostics()), "\n")
	return fmt.Errorf("%w: %s is %s: %s", is, ApplicationName(r.GetApplicationId()), r.GetYarnApplicationState(), why)
}

// AwaitMasterToken waits until an unmanaged application may have its master, and gives
// that master's State.
func (c *Client) AwaitMasterToken(ctx context.Context, id *yarnpb.ApplicationId, waiting func(*yarnpb.ApplicationReport)) (State, error) {
	r, err := c.Await(ctx, id, func(r *yarnpb.ApplicationReport) bool { return len(r.GetAmRmToken().GetIdentifier()) > 0 }, waiting)
	if err != nil {
		return State{}, err
	}
	return State{Token: *credentials.FromProto(r.GetAmRmToken())}, nil
}

// Kill ends an application and its containers, and waits until it has ended. One that
// has ended already is as good.
func (c *Client) Kill(ctx context.Context, id *yarnpb.ApplicationId, why string) error {
	_, err := call(ctx, c.ipc, "forceKillApplication", &yarnpb.KillApplicationRequest{ApplicationId: id, Diagnostics: &why}, &yarnpb.KillApplicationResponse{})
	if err != nil {
		return explain("end "+ApplicationName(id), err)
	}
	// The answer says of unmanaged ones that they have ended before they have.
	_, err = c.Await(ctx, id, func(r *yarnpb.ApplicationReport) bool { return Ended(r.GetYarnApplicationState()) }, nil)
	return err
}

// Applications are those that have one of the tags, ended or not.
func (c *Client) Applications(ctx context.Context, tags ...string) ([]*yarnpb.ApplicationReport, error) {
	r, err := call(ctx, c.ipc, "getApplications", &yarnpb.GetApplicationsRequest{ApplicationTags: tags}, &yarnpb.GetApplicationsResponse{})
	return r.GetApplications(), explain("ask for applications", err)
}

// Containers are those of an application's attempt that the ResourceManager knows: the
// ones that have not ended.
func (c *Client) Containers(ctx context.Context, attempt *yarnpb.ApplicationAttemptId) ([]*yarnpb.ContainerReport, error) {
	r, err := call(ctx, c.ipc, "getContainers", &yarnpb.GetContainersRequest{ApplicationAttemptId: attempt}, &yarnpb.GetContainersResponse{})
	return r.GetContainers(), explain("ask for the containers of "+ApplicationName(attempt.GetApplicationId()), err)
}

// Running are the applications of a type that have their master and have not ended.
func (c *Client) Running(ctx context.Context, applicationType string) ([]*yarnpb.ApplicationReport, error) {
	r, err := call(ctx, c.ipc, "getApplications", &yarnpb.GetApplicationsRequest{
		ApplicationTypes: []string{applicationType}, ApplicationStates: []yarnpb.YarnApplicationState{yarnpb.YarnApplicationState_RUNNING},
	}, &yarnpb.GetApplicationsResponse{})
	return r.GetApplications(), explain("ask for the applications that run", err)
}

// Queue tells how full a queue is.
func (c *Client) Queue(ctx context.Context, name string) (*yarnpb.QueueInfo, error) {
	r, err := call(ctx, c.ipc, "getQueueInfo", &yarnpb.GetQueueInfoRequest{
		QueueName: &name, IncludeApplications: new(false), IncludeChildQueues: new(false), Recursive: new(false),
	}, &yarnpb.GetQueueInfoResponse{})
	if err == nil && r.GetQueueInfo() == nil {
		err = &ipc.RemoteError{Class: "YarnException", Text: "unknown queue " + name} // the answer to the same question
	}
	return r.GetQueueInfo(), explain("ask for queue "+name, err)
}

// NodeReports are those of the nodes that run.
func (c *Client) NodeReports(ctx context.Context) ([]*yarnpb.NodeReport, error) {
	r, err := call(ctx, c.ipc, "getClusterNodes", &yarnpb.GetClusterNodesRequest{NodeStates: []yarnpb.NodeState{yarnpb.NodeState_NS_RUNNING}}, &yarnpb.GetClusterNodesResponse{})
	return r.GetNodeReports(), explain("ask for the nodes", err)
}

// Labels are the node labels that there are.
func (c *Client) Labels(ctx context.Context) ([]*yarnpb.NodeLabel, error) {
	r, err := call(ctx, c.ipc, "getClusterNodeLabels", &yarnpb.GetClusterNodeLabelsRequest{}, &yarnpb.GetClusterNodeLabelsResponse{})
	return r.GetNodeLabels(), explain("ask for node labels", err)
}

// ResourceTypes are those that the ResourceManager knows: memory-mb, vcores,
// yarn.io/gpu.
func (c *Client) ResourceTypes(ctx context.Context) ([]*yarnpb.ResourceTypeInfo, error) {
	r, err := call(ctx, c.ipc, "getResourceTypeInfo", &yarnpb.GetAllResourceTypeInfoRequest{}, &yarnpb.GetAllResourceTypeInfoResponse{})
	return r.GetResourceTypeInfo(), explain("ask for resource types", err)
}
