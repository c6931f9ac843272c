package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Run is a run with its manifest, which is nil if the run has none: it was of an earlier version, or was not entered.
type Run struct {
	Status   *clusterpb.RunStatus
	Manifest *clusterpb.RunManifest
}

// Kinds of facts of a run that are not entries of its tasks' manifests.
const (
	Program Kind = "program"
	Tasks   Kind = "tasks"
	Option  Kind = "option"
	File    Kind = "file"
	Data    Kind = "data"
	Git     Kind = "git"
)

// facts are what a run ran with, by kind and name.
type facts map[Kind]map[string]string

func (f facts) set(kind Kind, name, value string) {
	if value == "" {
		return
	}
	if f[kind] == nil {
		f[kind] = map[string]string{}
	}
	f[kind][name] = value
}

// factsOf returns what a run ran with. Values that differ between its tasks are described with the tasks.
func factsOf(r Run) facts {
	f, m := facts{}, r.Manifest
	f.set(Program, "", r.Status.GetProgram())
	f.set(Tasks, "", tasksOf(r))
	f.set(Option, "resumed from", r.Status.GetResumedFrom())
	for name, value := range Arguments(r.Status.GetWords()) {
		f.set(Argument, name, value)
	}
	if m == nil {
		return f
	}
	for name, value := range m.GetOptions() {
		f.set(Option, "--"+name, value)
	}
	for name, sum := range m.GetFiles() {
		f.set(File, name, shortHash(sum))
	}
	f.set(Version, "tfcluster", m.GetVersion())
	f.set(Option, "--framework", m.GetFramework())
	f.set(Git, "", gitText(m.GetGit()))
	for name, value := range m.GetCommon().GetEnvironment() {
		if !isSession(name) {
			f.set(Environment, name, value)
		}
	}
	for name, value := range m.GetEnvironment() {
		f.set(Environment, name, value)
	}
	f.ofTasks(Expand(m))
	return f
}

// ofTasks adds the facts of the tasks' manifests except the environment, which differs between tasks.
func (f facts) ofTasks(tasks map[string]*clusterpb.TaskManifest) {
	add := func(kind Kind, name string, value func(*clusterpb.TaskManifest) string) {
		f.set(kind, name, spread(tasks, value))
	}
	for _, e := range texts() {
		if e.kind == Environment {
			continue
		}
		names := map[string]bool{}
		for _, m := range tasks {
			for name := range *e.of(m) {
				names[name] = true
			}
		}
		for name := range names {
			add(e.kind, name, func(m *clusterpb.TaskManifest) string {
				if e.kind == Code {
					return shortHash((*e.of(m))[name])
				}
				return (*e.of(m))[name]
			})
		}
	}
	add(Version, gpuModels, gpusOf)
	add(Version, "CPUs", func(m *clusterpb.TaskManifest) string {
		if m.GetCpus() == 0 {
			return ""
		}
		return strconv.Itoa(int(m.GetCpus()))
	})
	for uri, use := range dataOf(tasks) {
		f.set(Data, uri, use)
	}
}

// spread returns the value that the tasks have, or which tasks have which one. Tasks without a value do not count.
func spread(tasks map[string]*clusterpb.TaskManifest, value func(*clusterpb.TaskManifest) string) string {
	byValue := map[string][]string{}
	for _, task := range slices.SortedFunc(maps.Keys(tasks), compareNames) {
		if v := value(tasks[task]); v != "" {
			byValue[v] = append(byValue[v], task)
		}
	}
	if len(byValue) == 0 {
		return ""
	}
	groups := grouped(byValue)
	if len(groups) == 1 {
		return groups[0].Value
	}
	var parts []string
	for _, g := range groups {
		parts = append(parts, fmt.Sprintf("%s on %s", g.Value, cluster.TaskList(g.Tasks)))
	}
	return strings.Join(parts, ", ")
}

// dataOf describes the data that the tasks used together, by its name.
func dataOf(tasks map[string]*clusterpb.TaskManifest) map[string]string {
	type sum struct {
		files, bytes, rows int64
		versions           []string // of copies, whose files count once
	}
	sums := map[string]*sum{}
	for _, m := range tasks {
		for uri, use := range m.GetData() {
			s := sums[uri]
			if s == nil {
				s = &sum{}
				sums[uri] = s
			}
			s.rows += use.GetRows()
			if v := use.GetVersion(); !slices.Contains(s.versions, v) {
				s.versions = append(s.versions, v)
				s.files, s.bytes = s.files+use.GetFiles(), s.bytes+use.GetBytes()
			}
		}
	}
	texts := map[string]string{}
	for uri, s := range sums {
		slices.Sort(s.versions)
		switch {
		case s.files > 0:
			texts[uri] = fmt.Sprintf("%d files, %d bytes, version %s", s.files, s.bytes, shortHash(strings.Join(s.versions, "")))
		case s.rows > 0:
			texts[uri] = fmt.Sprintf("%d records", s.rows)
		default:
			texts[uri] = "used"
		}
	}
	return texts
}

// tasksOf returns "chief,worker:0-3" for the tasks of a run.
func tasksOf(r Run) string {
	var names []string
	for _, t := range r.Status.GetTasks() {
		names = append(names, t.GetTask())
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(r.Manifest.GetTasks()))
	}
	return cluster.TaskList(names)
}

func gitText(g *clusterpb.GitCommit) string {
	text := shortHash(g.GetCommit())
	if g.GetBranch() != "" {
		text += " (" + g.GetBranch() + ")"
	}
	if g.GetDirty() {
		text += " with changes"
	}
	return text
}

// shortHash is enough of a hash to tell it from others.
func shortHash(sum string) string { return sum[:min(len(sum), 12)] }

// Arguments returns the arguments of a command line by name: the options, and the other words by their position from
// 1 on. Secrets are hidden. An option without a value has "given".
func Arguments(words []string) map[string]string {
	found, position := map[string]string{}, 0
	shown := RedactWords(words)
	for i := 0; i < len(shown); i++ {
		name, value, assigned := strings.Cut(shown[i], "=")
		switch {
		case !isOption(shown[i]):
			position++
			found[strconv.Itoa(position)] = shown[i]
			continue
		case assigned:
		case i+1 < len(shown) && !isOption(shown[i+1]):
			i++
			value = shown[i]
		default:
			value = "given"
		}
		found[name] = value
	}
	return found
}

// isSession reports whether a variable describes a login session or a container, not what a program runs with.
func isSession(name string) bool {
	switch name {
	case "PWD", "OLDPWD", "_", "SHLVL", "DISPLAY", "WINDOWID", "COLUMNS", "LINES", "LS_COLORS", "INVOCATION_ID",
		"JOURNAL_STREAM", "CONTAINER_ID", "LOCAL_DIRS", "LOG_DIRS", "LOCALIZATION_COUNTERS", "LAUNCH_ENV_FILE",
		"PYTEST_CURRENT_TEST", "MAIL", "HOSTNAME":
		return true
	}
	for _, prefix := range []string{
		"TERM", "SSH_", "XDG_", "DBUS_", "JPY_", "JUPYTER", "NM_", "APPLICATION_", "APP_SUBMIT", "SPARK_", "VSCODE_",
		"TMUX", "IPYTHON",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
