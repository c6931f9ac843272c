package containerlogs

import (
	"regexp"
	"strings"
)

// Stamp begins a line of a NodeManager's diagnostics.
var Stamp = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d [\d:.]+\]`)

// ErrorLine is the last that a container's process wrote to its standard error, where
// its NodeManager quotes that.
func ErrorLine(diagnostics string) string {
	lines := LastLines(diagnostics)
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// mostLines of what a NodeManager quotes are told on.
const mostLines = 20

// LastLines are the last that a container's process wrote to its standard error, where
// its NodeManager quotes that, or else what the shell said that was to start it.
func LastLines(diagnostics string) []string {
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
		case Stamp.MatchString(bare):
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

// MasterError say of an ended application's diagnostics what its ApplicationMaster
// wrote last, or else how they begin.
func MasterError(diagnostics string) string {
	if line := ErrorLine(diagnostics); line != "" {
		return line
	}
	first, _, _ := strings.Cut(strings.TrimSpace(diagnostics), "\n")
	return first
}
