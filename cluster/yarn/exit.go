package yarn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Exit statuses that are YARN's own.
var yarnsOwn = map[int32]string{
	-1000: "its node could not prepare its container",
	-100:  "its node was lost, or took the container back",
	-101:  "the disks of its node are full or broken",
	-102:  "YARN gave its container to another application (preempted)",
	-103:  "it used more virtual memory than its container may: ask for more memory",
	-104:  "it used more memory than its container may: ask for more memory",
	-105:  "its container was released",
	-106:  "its container was ended by the ResourceManager",
	-107:  "its application had ended",
}

// exitWords say why a container ended.
func exitWords(s *yarnpb.ContainerStatus) string {
	words, ok := yarnsOwn[s.GetExitStatus()]
	if !ok {
		words = fmt.Sprintf("its agent ended with code %d", s.GetExitStatus())
		if s.GetExitStatus() > 128 {
			words = fmt.Sprintf("its agent was killed by signal %d", s.GetExitStatus()-128)
		}
	}
	if line := containerlogs.ErrorLine(s.GetDiagnostics()); line != "" {
		return words + ": " + line
	}
	for line := range strings.Lines(s.GetDiagnostics()) {
		if line = strings.TrimSpace(containerlogs.Stamp.ReplaceAllString(line, "")); line != "" {
			return words + ": " + line
		}
	}
	return words
}

// startWords say why a container's process was not started.
func startWords(err error) string {
	if errors.Is(err, protocol.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		return err.Error() + "; the cluster's driver must reach the nodes' yarn.nodemanager.address: see that no firewall is between"
	}
	return err.Error()
}
