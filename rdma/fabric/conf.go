package fabric

import (
	"path"
	"slices"
	"strings"
)

// Limits of the settings that are reported for an executor.
const (
	maxOwn   = 64
	maxValue = 1024 // bytes
)

// concerns returns whether a variable is one of NCCL or of gloo's interface.
func concerns(name string) bool { return strings.HasPrefix(name, "NCCL_") || name == glooInterface }

// own returns the settings of the executor's environment and of NCCL's files. NCCL's order is kept: the environment,
// the user's file, the site's file; a setting that an earlier one hides is left out. The user's file is in the home
// folder of the password database for NCCL before 2.30, later in $HOME (userHomeDir in src/misc/param.cc): both are
// read, because the program's NCCL is not known here.
func (h *Host) own() []Variable {
	var all []Variable
	add := func(source string, lines []string) {
		known := len(all)
		for _, line := range lines {
			name, value, found := strings.Cut(line, "=")
			if !found || !concerns(name) || len(value) > maxValue || len(all) == maxOwn {
				continue
			}
			if slices.ContainsFunc(all, func(v Variable) bool { return v.Name == name }) {
				continue
			}
			all = append(all, Variable{Name: name, Value: value, Source: source})
		}
		slices.SortFunc(all[known:], func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	}
	environ := map[string]string{}
	for _, entry := range h.Environment {
		name, value, _ := strings.Cut(entry, "=")
		environ[name] = value
	}
	add("its environment", h.Environment)
	files := []string{environ["NCCL_CONF_FILE"]}
	if files[0] == "" {
		files = []string{path.Join(h.home(), ".nccl.conf"), path.Join(environ["HOME"], ".nccl.conf")}
	}
	for _, file := range append(files, "/etc/nccl.conf") {
		if rooted, found := strings.CutPrefix(file, "/"); found {
			add(file, parseConf(h.read(rooted)))
		}
	}
	return all
}

// home returns the user's home folder in the password database; "": it is not there.
func (h *Host) home() string {
	for line := range strings.Lines(h.read("etc/passwd")) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) == 7 && fields[2] == h.User {
			return fields[5]
		}
	}
	return ""
}

// parseConf returns the settings of an nccl.conf.
func parseConf(text string) []string {
	var settings []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); !strings.HasPrefix(line, "#") {
			settings = append(settings, line)
		}
	}
	return settings
}
