package command

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// Completion is the candidates for the text between two positions of a cell, in code
// points.
type Completion struct {
	Matches []string `json:"matches"`
	Start   int      `json:"start"`
	End     int      `json:"end"`
}

// Source returns the values that the table does not contain.
type Source interface {
	// Clusters returns the names of the clusters, with past also of those that have ended.
	Clusters(past bool) []string
	// Tasks returns the tasks of the cluster.
	Tasks() []string
	// Runs returns the runs of the cluster, the newest first.
	Runs() []string
	// Names returns the names of the notebook.
	Names() []string
	// Paths returns the files and folders that begin with a word.
	Paths(word string) []string
}

// Complete returns the candidates (verbs, options, values, clusters, tasks, names, paths) at a
// position of a cell's code; nil if the line is not a magic of ours.
func (t *Table) Complete(code string, cursor int, shell bool, source Source) *Completion {
	before, ok := magicAt(code, cursor)
	if !ok {
		return nil
	}
	word := before[strings.LastIndexAny(before, " \t\n")+1:]
	head := strings.Fields(before[:len(before)-len(word)])
	prefix := word
	if i := strings.LastIndexByte(word, '='); i >= 0 && strings.HasPrefix(word, "--") {
		prefix = word[i+1:]
	}
	c := &completer{table: t, shell: shell, source: source, word: word, prefix: prefix}
	var matches []string
	for _, m := range c.find(head) {
		if strings.HasPrefix(m, prefix) && !slices.Contains(matches, m) {
			matches = append(matches, m)
		}
	}
	return &Completion{Matches: matches, Start: cursor - utf8.RuneCountInString(prefix), End: cursor}
}

// magicAt returns the magic line at the cursor: the text between %tfcluster and the
// cursor.
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
		l, _ := logicalLine(code[start:])
		if end := start + len(l); at <= end || end >= len(code) {
			text := strings.TrimLeft(code[start:min(at, len(code))], " \t")
			text = text[len(assignment().FindString(text)):]
			for _, mark := range []string{"%%", "%"} {
				if after, found := strings.CutPrefix(text, mark+magicName); found &&
					(after == "" || strings.ContainsAny(after[:1], " \t\\")) {
					return after, after != ""
				}
			}
			return "", false
		}
		start += len(l) + 1
	}
}

// assignment matches the part before a magic whose value is assigned: run = %tfcluster wait.
var assignment = lazyre.New(`^[^\s%=#'"!?][^%=#'"!?]*=[ \t]*`)

// completer finds candidates for one word.
type completer struct {
	table  *Table
	shell  bool
	source Source
	word   string
	prefix string // the word, or of --option=value the value
}

func (c *completer) find(head []string) []string {
	if len(head) == 0 {
		return c.table.names(c.shell)
	}
	v := c.table.Verb(head[0])
	if v == nil {
		return nil
	}
	if v.Program && c.programGiven(v, head[1:]) {
		return c.paths()
	}
	if last := head[len(head)-1]; len(head) > 1 && strings.HasPrefix(last, "-") && !strings.Contains(last, "=") {
		if o := v.Lookup(strings.TrimLeft(last, "-")); o != nil && o.takesValue() {
			return c.values(o, head)
		}
	}
	if name, _, ok := strings.Cut(strings.TrimPrefix(c.word, "--"), "="); ok && strings.HasPrefix(c.word, "--") {
		if o := v.Lookup(name); o != nil {
			return c.values(o, head)
		}
	}
	if strings.HasPrefix(c.word, "-") {
		return c.options(v, head[1:])
	}
	return c.words(v)
}

// programGiven reports whether an earlier word is the program.
func (c *completer) programGiven(v *Verb, head []string) bool {
	for i := 0; i < len(head); i++ {
		name, isOption := strings.CutPrefix(head[i], "-")
		if !isOption {
			return true
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if o := v.Lookup(name); o != nil && o.takesValue() && !hasValue {
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
		if (!given || o.Repeat) && o.PerRole != OnlyFor {
			names = append(names, name)
		}
	}
	for i := range v.Options {
		if o := &v.Options[i]; o.PerRole != ForAll {
			for _, role := range rolesIn(head) {
				names = append(names, "--"+role+"-"+o.Name)
			}
		}
	}
	return names
}

// rolesIn returns the roles that an option may name: TensorFlow's and those of the line.
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
	case KindCluster, KindPastCluster:
		return c.source.Clusters(o.Kind == KindPastCluster)
	case KindTask:
		return c.source.Tasks()
	case KindShow:
		return append([]string{"all", "chief"}, c.source.Tasks()...)
	case KindResume:
		return append([]string{"last"}, c.source.Runs()...)
	case KindRun:
		return c.source.Runs()
	case KindRoles:
		return rolesIn(head)
	case KindIdle:
		return []string{"never", "30m", "2h"}
	case KindDuration:
		return []string{"30s", "10m", "1h"}
	case KindSize:
		return []string{"512m", "2g", "4g", "8g"}
	case KindObject:
		return c.source.Names()
	case KindPath:
		return c.paths()
	}
	return nil
}

func (c *completer) words(v *Verb) []string {
	switch v.Operand {
	case OperandProgram:
		if strings.Contains(c.word, "/") {
			return c.paths()
		}
		return append(c.source.Names(), slices.DeleteFunc(c.paths(), func(p string) bool {
			return !strings.HasSuffix(p, ".py") && !strings.HasSuffix(p, "/")
		})...)
	case OperandCluster:
		return c.source.Clusters(false)
	case OperandTask:
		return c.source.Tasks()
	case OperandVerb:
		return c.table.names(c.shell)
	case OperandData:
		return append(c.source.Names(), c.paths()...)
	}
	return nil
}

// paths returns the files and folders that begin with the word, or with the value in it.
func (c *completer) paths() []string { return c.source.Paths(c.prefix) }
