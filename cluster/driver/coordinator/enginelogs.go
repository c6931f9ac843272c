package coordinator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// Limits of engine logs.
const (
	engineLogLines = 100
	engineLogBytes = 256 << 10
	engineLogWait  = 10 * time.Second
	engineReading  = 30 * time.Minute // of reading all of them
)

// sendContainerLogs sends the engine's logs of the executors' agents.
func (c *control) sendContainerLogs(ctx context.Context, req *clusterpb.LogsRequest,
	stream grpc.ServerStreamingServer[clusterpb.LinesReply],
) error {
	alloc, err := c.allocation(ctx)
	if err != nil {
		return err
	}
	history, ok := alloc.(cluster.ApplicationHistory)
	if !ok {
		return status.Error(codes.FailedPrecondition,
			"this cluster's engine keeps no logs of its executors that could be read here")
	}
	q := cluster.LogQuery{Allocation: req.GetAllocation(), Task: req.GetTask(), Last: int(req.GetLast())}
	if req.GetGrep() != "" {
		re, err := regexp.Compile(req.GetGrep())
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "--grep: %v", err)
		}
		q.Grep = re
	}
	ctx, cancel := context.WithTimeout(ctx, engineReading)
	defer cancel()
	err = history.ContainerLogs(ctx, q, func(heading string, lines []*clusterpb.Line) error {
		return stream.Send(&clusterpb.LinesReply{Heading: heading, Lines: lines})
	})
	if err != nil && status.Code(err) == codes.Unknown {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// engineLogs sends the logs of agents that have not joined, which say why. It returns the
// number of lines sent.
func (c *control) engineLogs(ctx context.Context, req *clusterpb.LogsRequest,
	stream grpc.ServerStreamingServer[clusterpb.LinesReply],
) (int, error) {
	var missing []cluster.ExecutorRequest
	var alloc cluster.Allocation
	err := c.call(ctx, func() {
		alloc = c.reserved.alloc
		for _, x := range c.lc.Executors() {
			if x.State != lifecycle.ExecutorJoined && x.State != lifecycle.ExecutorReady &&
				(req.GetTask() == "" || req.GetTask() == x.Task.String()) {
				missing = append(missing, cluster.ExecutorRequest{ID: x.ID, Task: x.Task})
			}
		}
	})
	if err != nil {
		return 0, status.Error(codes.Unavailable, err.Error())
	}
	logs, ok := alloc.(cluster.AgentLogs)
	if !ok {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineLogWait)
	defer cancel()
	sent := 0
	for _, x := range missing {
		lines, err := engineLog(ctx, logs, x)
		if errors.Is(err, fs.ErrNotExist) || sent > 0 && ctx.Err() != nil {
			continue // no agent has been started there yet, or the time was up before its log was asked for
		}
		if err != nil {
			lines = append(lines, agentLine(x.Task, "its log cannot be read: "+err.Error()))
		}
		sent += len(lines)
		if err := stream.Send(&clusterpb.LinesReply{Lines: lines}); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// engineLog returns the end of one agent's log.
func engineLog(ctx context.Context, logs cluster.AgentLogs, x cluster.ExecutorRequest) ([]*clusterpb.Line, error) {
	r, err := logs.Logs(ctx, x.ID)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var lines []*clusterpb.Line
	s := bufio.NewScanner(io.LimitReader(r, engineLogBytes))
	s.Buffer(nil, engineLogBytes+1)
	for s.Scan() {
		text := strings.ToValidUTF8(s.Text(), "\uFFFD")
		lines = append(lines, agentLine(x.Task, text))
	}
	return lines[max(0, len(lines)-engineLogLines):], s.Err()
}

// agentLine returns a line of, or about, the log of a task's agent.
func agentLine(task cluster.TaskID, text string) *clusterpb.Line {
	return &clusterpb.Line{Stream: clusterpb.Line_STDERR, Task: fmt.Sprintf("agent of %s", task), Text: text}
}
