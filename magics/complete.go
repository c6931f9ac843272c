package magics

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster"
)

// Completion is what a front end offers between two positions of a cell, counted
// in code points.
type Completion struct {
	Matches []string `json:"matches"`
	Start   int      `json:"start"`
	End     int      `json:"end"`
}

// Complete offers verbs, options, values, clusters, tasks, names and paths at a
// position of a cell's code; nil where the line is not ours. py may be nil.
func (s *Session) Complete(ctx context.Context, code string, cursor int, py Python) *Completion {
	before, ok := magicAt(code, cursor)
	if !ok {
		return nil
	}
	word := before[strings.LastIndexAny(before, " \t\n")+1:]
	head := strings.Fields(before[:len(before)-len(word)])
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	c := &completer{session: s, ctx: ctx, py: py, word: word}
	found := c.find(head)
	prefix := word
	if i := strings.LastIndexByte(word, '='); i >= 0 && strings.HasPrefix(word, "--") {
		prefix = word[i+1:]
	}
	var matches []string
	for _, m := range found {
		if strings.HasPrefix(m, prefix) && !slices.Contains(matches, m) {
			matches = append(matches, m)
		}
	}
	return &Completion{Matches: matches, Start: cursor - utf8.RuneCountInString(prefix), End: cursor}
}

// magicAt finds the magic line that holds the cursor: what stands before the
// cursor after %tfcluster.
func magicAt(code string, cursor int) (before string, ok bool) {
	at := 0
	for i := range code {
		if cursor == 0 {
			break
		}
		cursor--
		_, size := utf8.DecodeRuneInString(code[i:])
		at = i + size
	}
	start := 0
	for {
		var l string
		l, _ = logicalLine(code[start:])
		if end := start + len(l); at <= end || end >= len(code) {
			text := strings.TrimLeft(code[start:min(at, len(code))], " \t")
			for _, mark := range []string{"%%", "%"} {
				if after, found := strings.CutPrefix(text, mark+magicName); found && (after == "" || strings.ContainsAny(after[:1], " \t\\")) {
					return after, after != ""
				}
			}
			return "", false
		}
		start += len(l) + 1
	}
}

// completer finds candidates for one word.
type completer struct {
	session *Session
	ctx     context.Context // of one completion
	py      Python
	word    string
}

func (c *completer) find(head []string) []string {
	if len(head) == 0 {
		return c.session.table.names(c.session.opt.Shell)
	}
	v := c.session.table.Verb(head[0])
	if v == nil {
		return nil
	}
	if v.Program && c.programGiven(v, head[1:]) {
		return c.paths()
	}
	if last := head[len(head)-1]; len(head) > 1 && strings.HasPrefix(last, "-") && !strings.Contains(last, "=") {
		if o := v.lookup(strings.TrimLeft(last, "-")); o != nil && o.takesValue() {
			return c.values(o, head)
		}
	}
	if name, _, ok := strings.Cut(strings.TrimPrefix(c.word, "--"), "="); ok && strings.HasPrefix(c.word, "--") {
		if o := v.lookup(name); o != nil {
			return c.values(o, head)
		}
	}
	if strings.HasPrefix(c.word, "-") {
		return c.options(v, head[1:])
	}
	return c.words(v)
}

// lookup finds an option, also one for a role.
func (v *Verb) lookup(name string) *Option {
	if o := v.option(name); o != nil {
		return o
	}
	_, o := v.roleOption(name)
	return o
}

// programGiven is whether the words before are the program's already.
func (c *completer) programGiven(v *Verb, head []string) bool {
	for i := 0; i < len(head); i++ {
		name, isOption := strings.CutPrefix(head[i], "-")
		if !isOption {
			return true
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if o := v.lookup(name); o != nil && o.takesValue() && !hasValue {
			i++
		}
	}
	return false
}

func (c *completer) options(v *Verb, head []string) []string {
	var names []string
	for i := range v.Options {
		o := &v.Options[i]
		name := "--" + o.Name
		given := slices.ContainsFunc(head, func(w string) bool { return w == name || strings.HasPrefix(w, name+"=") })
		if (!given || o.Repeat) && o.PerRole != onlyFor {
			names = append(names, name)
		}
	}
	for i := range v.Options {
		if o := &v.Options[i]; o.PerRole != forAll {
			for _, role := range rolesIn(head) {
				names = append(names, "--"+role+"-"+o.Name)
			}
		}
	}
	return names
}

// rolesIn are the roles that there may be: TensorFlow's, and those a line names.
func rolesIn(head []string) []string {
	roles := []string{cluster.Chief, cluster.Worker, cluster.PS, cluster.Evaluator}
	for i, w := range head {
		given, ok := strings.CutPrefix(w, "--role=")
		if !ok && i > 0 && head[i-1] == "--role" {
			given, ok = w, true
		}
		if name, _, counted := strings.Cut(given, "="); ok && counted {
			roles = append(roles, name)
		}
	}
	return roles
}

func (c *completer) values(o *Option, head []string) []string {
	switch o.Kind {
	case KindChoice:
		return o.Choices
	case KindCluster:
		return append(c.session.names(c.ctx), c.session.pastNames(head[0])...)
	case KindTask:
		return c.tasks()
	case KindShow:
		return append([]string{"all", "chief"}, c.tasks()...)
	case KindResume:
		return append([]string{"last"}, c.runs()...)
	case KindRun:
		return c.runs()
	case KindRoles:
		return rolesIn(head)
	case KindIdle:
		return []string{"never", "30m", "2h"}
	case KindDuration:
		return []string{"30s", "10m", "1h"}
	case KindSize:
		return []string{"512m", "2g", "4g", "8g"}
	case KindObject:
		return c.notebookNames()
	case KindPath:
		return c.paths()
	}
	return nil
}

func (c *completer) words(v *Verb) []string {
	switch v.Name {
	case "start", "run":
		if strings.Contains(c.word, "/") {
			return c.paths()
		}
		return append(c.notebookNames(), slices.DeleteFunc(c.paths(), func(p string) bool {
			return !strings.HasSuffix(p, ".py") && !strings.HasSuffix(p, "/")
		})...)
	case "attach":
		return c.session.names(c.ctx)
	case "help":
		return c.session.table.names(c.session.opt.Shell)
	case "train", "evaluate", "inference":
		return append(c.notebookNames(), c.paths()...)
	}
	return nil
}

func (c *completer) tasks() []string {
	m := c.session.member(c.session.lastName())
	if m == nil {
		return []string{"chief:0", "worker:0", "worker:1", "ps:0"}
	}
	st, err := m.status(c.ctx)
	if err != nil {
		return nil
	}
	var tasks []string
	for _, x := range st.GetExecutors() {
		tasks = append(tasks, x.GetTask())
	}
	return tasks
}

func (c *completer) runs() []string {
	m := c.session.member(c.session.lastName())
	if m == nil {
		return nil
	}
	runs, err := m.history(c.ctx, true)
	if err != nil {
		return nil
	}
	var ids []string
	for _, run := range slices.Backward(runs) {
		ids = append(ids, strconv.Itoa(int(run.GetId())))
	}
	return ids
}

// notebookNames are the names of the notebook that begin as the word does.
func (c *completer) notebookNames() []string {
	var names []string
	if err := ask(c.ctx, c.py, glanceTimeout, "names", map[string]any{}, &names); err != nil {
		return nil
	}
	return names
}

// paths are the files and folders that the word begins.
func (c *completer) paths() []string {
	word := c.word
	if i := strings.LastIndexByte(word, '='); i >= 0 && strings.HasPrefix(word, "--") {
		word = word[i+1:]
	}
	base := c.session.opt.WorkingDir
	if c.py != nil {
		var cwd string
		if err := ask(c.ctx, c.py, glanceTimeout, "cwd", map[string]any{}, &cwd); err == nil {
			base = cwd
		}
	}
	folder, start := filepath.Split(word)
	entries, err := os.ReadDir(absolute(base, folder))
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), start) || (start == "" && strings.HasPrefix(e.Name(), ".")) {
			continue
		}
		name := folder + e.Name()
		if e.IsDir() {
			name += "/"
		}
		found = append(found, name)
		if len(found) >= 200 {
			break
		}
	}
	return found
}
