package containerlogs

import (
	"cmp"
	"regexp"
	"strings"
)

// Stamp matches the time at the start of a line of a NodeManager's diagnostics.
var Stamp = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d [\d:.]+\]`)

// ErrorLine returns the last line of a container's standard error that its NodeManager quotes in the
// diagnostics, or "".
func ErrorLine(diagnostics string) string {
	lines := LastLines(diagnostics)
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// maxLines bounds the number of lines that LastLines returns.
const maxLines = 20

// LastLines returns the last lines of a container's standard error that its NodeManager quotes in the
// diagnostics, or, if there are none, those of the shell script that starts the container's process.
func LastLines(diagnostics string) []string {
	quoted := map[string][]string{} // by the name of the log
	within := ""
	for line := range strings.Lines(diagnostics) {
		line = strings.TrimRight(line, " \t\r\n")
		bare := strings.TrimSpace(line)
		switch name, ok := quotedLog(bare); {
		case ok && len(quoted[name]) > 0: // the NodeManager repeats the quote
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
	return lines[max(0, len(lines)-maxLines):]
}

// quotedLog returns the name of the log that a line of diagnostics announces: Last 4096 bytes of stderr :
func quotedLog(line string) (name string, ok bool) {
	if !strings.HasPrefix(line, "Last ") || !strings.HasSuffix(line, " :") {
		return "", false
	}
	_, name, ok = strings.Cut(strings.TrimSuffix(line, " :"), " bytes of ")
	return name, ok
}

// MasterError returns the last line of an ended application's ApplicationMaster, or the first line of the
// diagnostics.
func MasterError(diagnostics string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(diagnostics), "\n")
	return cmp.Or(ErrorLine(diagnostics), first)
}
