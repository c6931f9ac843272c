package yarn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

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

// stamp begins a line of a NodeManager's diagnostics.
var stamp = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d [\d:.]+\]`)

// exitWords say why a container ended.
func exitWords(s *yarnpb.ContainerStatus) string {
	words, ok := yarnsOwn[s.GetExitStatus()]
	if !ok {
		words = fmt.Sprintf("its agent ended with code %d", s.GetExitStatus())
		if s.GetExitStatus() > 128 {
			words = fmt.Sprintf("its agent was killed by signal %d", s.GetExitStatus()-128)
		}
	}
	if line := errorLine(s.GetDiagnostics()); line != "" {
		return words + ": " + line
	}
	for line := range strings.Lines(s.GetDiagnostics()) {
		if line = strings.TrimSpace(stamp.ReplaceAllString(line, "")); line != "" {
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

// errorLine is the last that a container's process wrote to its standard error, where
// its NodeManager quotes that.
func errorLine(diagnostics string) string {
	lines := lastLines(diagnostics)
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// mostLines of what a NodeManager quotes are told on.
const mostLines = 20

// lastLines are the last that a container's process wrote to its standard error, where
// its NodeManager quotes that, or else what the shell said that was to start it.
func lastLines(diagnostics string) []string {
	quoted := map[string][]string{} // by the name of the log
	within := ""
	for line := range strings.Lines(diagnostics) {
		line = strings.TrimRight(line, " \t\r\n")
		bare := strings.TrimSpace(line)
		switch name, ok := quoting(bare); {
		case ok && len(quoted[name]) > 0: // it says the same again
			within = ""
		case ok:
			within = name
		case stamp.MatchString(bare):
			within = ""
		case within != "" && bare != "":
			quoted[within] = append(quoted[within], line)
		}
	}
	lines := quoted["stderr"]
	if len(lines) == 0 {
		lines = quoted["prelaunch.err"]
	}
	return lines[max(0, len(lines)-mostLines):]
}

// quoting is the log that a line of diagnostics announces: Last 4096 bytes of stderr :
func quoting(line string) (name string, ok bool) {
	if !strings.HasPrefix(line, "Last ") || !strings.HasSuffix(line, " :") {
		return "", false
	}
	_, name, ok = strings.Cut(strings.TrimSuffix(line, " :"), " bytes of ")
	return name, ok
}
