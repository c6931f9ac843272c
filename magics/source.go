package magics

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/session"
	"github.com/tfcluster/tfcluster/magics/verbs"
)

// Complete offers verbs, options, values, clusters, tasks, names and paths at a
// position of a cell's code; nil where the line is not ours. py may be nil.
func (s *Session) Complete(ctx context.Context, code string, cursor int, py bridge.Python) *command.Completion {
	ctx, cancel := context.WithTimeout(ctx, bridge.GlanceTimeout)
	defer cancel()
	return s.verbs.Table.Complete(code, cursor, s.Options.Shell, &source{session: s.State, ctx: ctx, py: py})
}

// Inspect is the help for the magic under the cursor, as Shift-Tab and
// %tfcluster VERB? show it; nil where the line is not ours.
func (s *Session) Inspect(code string, cursor int) map[string]any {
	return s.verbs.Table.Inspect(code, cursor, s.Options.Shell)
}

// source is what a completion finds outside the table.
type source struct {
	session *session.State
	ctx     context.Context // of one completion
	py      bridge.Python
}

// Clusters implements Source.
func (c *source) Clusters(past bool) []string {
	names := c.session.Names(c.ctx)
	if past {
		names = append(names, c.session.PastClusterNames()...)
	}
	return names
}

// Tasks implements Source.
func (c *source) Tasks() []string {
	m := c.session.Find(c.session.LastName())
	if m == nil {
		return []string{"chief:0", "worker:0", "worker:1", "ps:0"}
	}
	st, err := m.Status(c.ctx)
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
	m := c.session.Find(c.session.LastName())
	if m == nil {
		return nil
	}
	runs, err := m.History(c.ctx, true)
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
	if err := bridge.Ask(c.ctx, c.py, bridge.GlanceTimeout, "names", map[string]any{}, &names); err != nil {
		return nil
	}
	return names
}

// Paths implements Source.
func (c *source) Paths(word string) []string {
	base := c.session.Options.WorkingDir
	var cwd string
	if err := bridge.Ask(c.ctx, c.py, bridge.GlanceTimeout, "cwd", map[string]any{}, &cwd); err == nil {
		base = cwd
	}
	folder, start := filepath.Split(word)
	entries, err := os.ReadDir(verbs.Absolute(base, folder))
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
