package yarn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Exit statuses that YARN itself sets.
var exitStatuses = map[int32]string{
	-1000: "its node could not prepare its container",
	-100:  "its node was lost, or released the container",
	-101:  "the disks of its node are full or broken",
	-102:  "YARN gave its container to another application (preempted)",
	-103:  "it used more virtual memory than its container may: ask for more memory",
	-104:  "it used more memory than its container may: ask for more memory",
	-105:  "its container was released",
	-106:  "its container was ended by the ResourceManager",
	-107:  "its application had ended",
	-108:  "its NodeManager gave its place to others",
}

// exitCause returns why a container ended, in one line.
func exitCause(s *yarnpb.ContainerStatus) string {
	cause, ok := exitStatuses[s.GetExitStatus()]
	if !ok {
		cause = fmt.Sprintf("its agent ended with code %d", s.GetExitStatus())
		if s.GetExitStatus() > 128 {
			cause = fmt.Sprintf("its agent was killed by signal %d", s.GetExitStatus()-128)
		}
	}
	if line := containerlogs.ErrorLine(s.GetDiagnostics()); line != "" {
		return cause + ": " + line
	}
	for line := range strings.Lines(s.GetDiagnostics()) {
		if line = strings.TrimSpace(containerlogs.Stamp.ReplaceAllString(line, "")); line != "" {
			return cause + ": " + line
		}
	}
	return cause
}

// lostBy returns what ended a container, by its exit status: also a container whose files its node could not fetch
// fails in the same way again. Codes above 128 are signals.
func lostBy(status int32) cluster.LostBy {
	switch {
	case status == -103, status == -104:
		return cluster.LostByMemory
	case status == -100, status == -101, status == -102, status == -106, status == -108:
		return cluster.LostByHost
	case status == -1000, status > 0 && status <= 128:
		return cluster.LostByError
	}
	return cluster.LostByEngine
}

// EndReason implements cluster.EndReporter.
func (a *Attempt) EndReason(ctx context.Context) string {
	const unknown = "YARN ended its ApplicationMaster: the application was killed, or the node is being shut down"
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return unknown
	}
	defer client.Close()
	r, err := client.Report(ctx, a.id)
	if err != nil {
		return unknown
	}
	if user := killedBy(r.GetDiagnostics()); user != "" {
		return "killed in YARN by " + user
	}
	return unknown
}

// killedBy returns the user who killed an application, by its diagnostics; "" if they do not say so
// (ClientRMService.forceKillApplication).
func killedBy(diagnostics string) string {
	_, after, _ := strings.Cut(diagnostics, "was killed by user ")
	user, _, _ := strings.Cut(after, " ")
	return strings.TrimSuffix(strings.TrimSpace(user), ".")
}

// startError returns why a container's process could not be started, with advice if its node is unreachable.
func startError(err error) string {
	if errors.Is(err, protocol.ErrUnreachable) && !errors.Is(err, protocol.ErrUnusable) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err.Error() + "; see that the NodeManager runs and answers, and that no firewall is between the cluster's " +
			"driver and its yarn.nodemanager.address"
	}
	return err.Error()
}
