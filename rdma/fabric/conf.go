package fabric

import (
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
// the user's file, the site's file; a setting that an earlier one hides is left out.
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
	file := environ["NCCL_CONF_FILE"]
	if file == "" && environ["HOME"] != "" {
		file = environ["HOME"] + "/.nccl.conf"
	}
	for _, file := range []string{file, "/etc/nccl.conf"} {
		if rooted, found := strings.CutPrefix(file, "/"); found {
			add(file, parseConf(h.read(rooted)))
		}
	}
	return all
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
