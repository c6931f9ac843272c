package protocol

import (
	"cmp"
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

// Client calls the ResourceManager with a user's permissions. It is safe for concurrent use.
type Client struct {
	ipc *ipc.Client
}

// NewClient returns a client of the configuration's ResourceManager. Calls are retried for retryFor while it
// is unreachable.
func NewClient(conf *hadoopconf.Conf, user string, retryFor time.Duration) (*Client, error) {
	if conf.Get("hadoop.security.authentication") == "kerberos" {
		return nil, errors.New("YARN asks for Kerberos (hadoop.security.authentication), which tfcluster does not support " +
			"yet: use --backend spark --master yarn")
	}
	at, err := addresses(conf, clientService)
	if err != nil {
		return nil, err
	}
	return &Client{ipc: ipc.NewClient(at, retryFor, ipc.Config{
		Protocol: clientService.protocol, User: user, Protections: protections(conf),
	})}, nil
}

// Close cancels pending calls and closes the connection.
func (c *Client) Close() error { return c.ipc.Close() }

// call makes a call and returns its response with the right type.
func call[Q, R proto.Message](ctx context.Context, c *ipc.Client, method string, request Q, response R) (R, error) {
	return response, c.Call(ctx, method, request, response)
}

// NewApplication returns a new application ID and the maximum size of a container.
func (c *Client) NewApplication(ctx context.Context) (*yarnpb.ApplicationId, *yarnpb.Resource, error) {
	r, err := call(ctx, c.ipc, "getNewApplication", &yarnpb.GetNewApplicationRequest{},
		&yarnpb.GetNewApplicationResponse{})
	return r.GetApplicationId(), r.GetMaximumCapability(), explain("ask YARN for a new application", err)
}

// Submit submits an application under the ID in its context. It may be repeated.
func (c *Client) Submit(ctx context.Context, s *yarnpb.ApplicationSubmissionContext) error {
	_, err := call(ctx, c.ipc, "submitApplication", &yarnpb.SubmitApplicationRequest{ApplicationSubmissionContext: s},
		&yarnpb.SubmitApplicationResponse{})
	return explain("submit "+ApplicationName(s.GetApplicationId())+" to queue "+s.GetQueue(), err)
}

// Report returns the report of an application.
func (c *Client) Report(ctx context.Context, id *yarnpb.ApplicationId) (*yarnpb.ApplicationReport, error) {
	r, err := call(ctx, c.ipc, "getApplicationReport", &yarnpb.GetApplicationReportRequest{ApplicationId: id},
		&yarnpb.GetApplicationReportResponse{})
	return r.GetApplicationReport(), explain("query "+ApplicationName(id), err)
}

// Ended reports whether a state is final.
func Ended(s yarnpb.YarnApplicationState) bool {
	return s == yarnpb.YarnApplicationState_FINISHED || s == yarnpb.YarnApplicationState_FAILED ||
		s == yarnpb.YarnApplicationState_KILLED
}

// pollInterval is the first interval at which Await queries an application.
const pollInterval = 20 * time.Millisecond

// Await queries an application until wanted returns true. If the application ends before, Await returns an
// error with the reason. It calls waiting, if it is not nil, with each other report.
func (c *Client) Await(ctx context.Context, id *yarnpb.ApplicationId, wanted func(*yarnpb.ApplicationReport) bool,
	waiting func(*yarnpb.ApplicationReport),
) (*yarnpb.ApplicationReport, error) {
	for pause := pollInterval; ; pause = min(pause*3/2, time.Second) {
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
			return nil, fmt.Errorf("YARN takes too long: %s is still %s (%w)", ApplicationName(id),
				strings.ToLower(r.GetYarnApplicationState().String()), context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// ended returns the error for an application that has ended.
func ended(r *yarnpb.ApplicationReport) error {
	why, _, _ := strings.Cut(strings.TrimSpace(r.GetDiagnostics()), "\n")
	if why == "" {
		why = ApplicationName(r.GetApplicationId()) + " is " + strings.ToLower(r.GetYarnApplicationState().String())
	}
	return fmt.Errorf("%w: %s", cmp.Or(classify("", r.GetDiagnostics()), ErrGone), why)
}

// AwaitMasterToken waits until YARN has activated an unmanaged application, and returns the State of its
// master.
func (c *Client) AwaitMasterToken(ctx context.Context, id *yarnpb.ApplicationId,
	waiting func(*yarnpb.ApplicationReport),
) (State, error) {
	r, err := c.Await(ctx, id, func(r *yarnpb.ApplicationReport) bool { return len(r.GetAmRmToken().GetIdentifier()) > 0 },
		waiting)
	if err != nil {
		return State{}, err
	}
	return State{Token: *credentials.FromProto(r.GetAmRmToken())}, nil
}

// Kill kills an application and its containers, and waits until it has ended. It succeeds if the application
// has ended already.
func (c *Client) Kill(ctx context.Context, id *yarnpb.ApplicationId, why string) error {
	_, err := call(ctx, c.ipc, "forceKillApplication",
		&yarnpb.KillApplicationRequest{ApplicationId: id, Diagnostics: &why}, &yarnpb.KillApplicationResponse{})
	if err != nil {
		return explain("kill "+ApplicationName(id), err)
	}
	// For unmanaged applications the response comes before they have ended.
	_, err = c.Await(ctx, id, func(r *yarnpb.ApplicationReport) bool { return Ended(r.GetYarnApplicationState()) }, nil)
	return err
}

// Applications returns the reports of the applications with one of the tags, including ended ones.
func (c *Client) Applications(ctx context.Context, tags ...string) ([]*yarnpb.ApplicationReport, error) {
	r, err := call(ctx, c.ipc, "getApplications", &yarnpb.GetApplicationsRequest{ApplicationTags: tags},
		&yarnpb.GetApplicationsResponse{})
	return r.GetApplications(), explain("list applications", err)
}

// Containers returns the containers of an application's attempt that have not completed.
func (c *Client) Containers(ctx context.Context,
	attempt *yarnpb.ApplicationAttemptId,
) ([]*yarnpb.ContainerReport, error) {
	r, err := call(ctx, c.ipc, "getContainers", &yarnpb.GetContainersRequest{ApplicationAttemptId: attempt},
		&yarnpb.GetContainersResponse{})
	return r.GetContainers(), explain("list the containers of "+ApplicationName(attempt.GetApplicationId()), err)
}

// Running returns the running applications of a type.
func (c *Client) Running(ctx context.Context, applicationType string) ([]*yarnpb.ApplicationReport, error) {
	r, err := call(ctx, c.ipc, "getApplications", &yarnpb.GetApplicationsRequest{
		ApplicationTypes:  []string{applicationType},
		ApplicationStates: []yarnpb.YarnApplicationState{yarnpb.YarnApplicationState_RUNNING},
	}, &yarnpb.GetApplicationsResponse{})
	return r.GetApplications(), explain("list the running applications", err)
}

// Queue returns a queue's state and statistics.
func (c *Client) Queue(ctx context.Context, name string) (*yarnpb.QueueInfo, error) {
	r, err := call(ctx, c.ipc, "getQueueInfo", &yarnpb.GetQueueInfoRequest{
		QueueName: &name, IncludeApplications: new(false), IncludeChildQueues: new(false), Recursive: new(false),
	}, &yarnpb.GetQueueInfoResponse{})
	if err == nil && r.GetQueueInfo() == nil {
		err = &ipc.RemoteError{Class: "YarnException", Text: "unknown queue " + name} // what other versions of YARN return
	}
	return r.GetQueueInfo(), explain("query queue "+name, err)
}

// NodeReports returns the reports of the running nodes.
func (c *Client) NodeReports(ctx context.Context) ([]*yarnpb.NodeReport, error) {
	r, err := call(ctx, c.ipc, "getClusterNodes",
		&yarnpb.GetClusterNodesRequest{NodeStates: []yarnpb.NodeState{yarnpb.NodeState_NS_RUNNING}},
		&yarnpb.GetClusterNodesResponse{})
	return r.GetNodeReports(), explain("list the nodes", err)
}

// Labels returns the cluster's node labels.
func (c *Client) Labels(ctx context.Context) ([]*yarnpb.NodeLabel, error) {
	r, err := call(ctx, c.ipc, "getClusterNodeLabels", &yarnpb.GetClusterNodeLabelsRequest{},
		&yarnpb.GetClusterNodeLabelsResponse{})
	return r.GetNodeLabels(), explain("list the node labels", err)
}
