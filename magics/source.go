package magics

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Complete offers verbs, options, values, clusters, tasks, names and paths at a
// position of a cell's code; nil where the line is not ours. py may be nil.
func (s *Session) Complete(ctx context.Context, code string, cursor int, py Python) *Completion {
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	return s.table.Complete(code, cursor, s.opt.Shell, &source{session: s.State, ctx: ctx, py: py})
}

// Inspect is the help for the magic under the cursor, as Shift-Tab and
// %tfcluster VERB? show it; nil where the line is not ours.
func (s *Session) Inspect(code string, cursor int) map[string]any {
	return s.table.Inspect(code, cursor, s.opt.Shell)
}

// source is what a completion finds outside the table.
type source struct {
	session *State
	ctx     context.Context // of one completion
	py      Python
}

// Clusters implements Source.
func (c *source) Clusters(v *Verb) []string {
	return append(c.session.names(c.ctx), c.session.pastNames(v.Name)...)
}

// Tasks implements Source.
func (c *source) Tasks() []string {
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

// Runs implements Source.
func (c *source) Runs() []string {
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

// Names implements Source.
func (c *source) Names() []string {
	var names []string
	if err := ask(c.ctx, c.py, glanceTimeout, "names", map[string]any{}, &names); err != nil {
		return nil
	}
	return names
}

// Paths implements Source.
func (c *source) Paths(word string) []string {
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
