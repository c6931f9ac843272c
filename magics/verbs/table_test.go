package verbs

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/local"
	"github.com/tfcluster/tfcluster/cluster/spark"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/session"
)

// nobody knows no name.
type nobody struct{}

func (nobody) Expand(context.Context, []string) (map[string]*string, error) { return nil, nil }

func (nobody) Evaluate(context.Context, string) (string, error) { return "", nil }

// engines have an option of each kind.
func engines() cluster.Engines {
	return cluster.Engines{local.Engine(nil), spark.Engine(nil), yarn.Engine(nil)}
}

// TestTable: what the table promises holds for every row.
func TestTable(t *testing.T) {
	t.Parallel()
	set := NewSet(engines())
	table := set.Table
	for i := range table.Verbs {
		v := &table.Verbs[i]
		if set.rows[v.Name].run == nil {
			t.Errorf("%s: nothing does it", v.Name)
		}
		if v.Now != (v.Option("now") != nil) {
			t.Errorf("%s: --now is allowed %v and listed %v", v.Name, v.Now, v.Option("now") != nil)
		}
		if v.Option("cluster") == nil && v.Name != "run" && v.Name != "trust" { // of no cluster
			t.Errorf("%s has no -c", v.Name)
		}
		seen := map[string]bool{}
		for _, o := range v.Options {
			if seen[o.Name] || o.Help == "" || (o.Kind == command.KindCount && o.Max == 0) {
				t.Errorf("%s --%s is twice there, unexplained or unbounded", v.Name, o.Name)
			}
			seen[o.Name] = true
		}
		if _, err := table.VerbUsage(v.Name, v.Shell); err != nil {
			t.Errorf("help %s: %v", v.Name, err)
		}
		if v.Example != "" {
			if _, err := table.Command(context.Background(), table.Line(v.Example, nil), nobody{}, !v.Magic); err != nil {
				t.Errorf("the example of %s: %v", v.Name, err)
			}
		}
	}
}

// FuzzParse: any words give a command or an error.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"start main_fun 'c' \"d\" # e", "logs -fn20 --now {", "reserve --ps-memory 4g --role=a=1 ?", "%%", "start é$ü{ü}",
	} {
		f.Add(seed)
	}
	table := NewSet(engines()).Table
	f.Fuzz(func(t *testing.T, line string) {
		for _, cell := range []*string{nil, &line} {
			if c, err := table.Command(context.Background(), table.Line(line, cell), nobody{}, false); err == nil &&
				c.Verb == nil {
				t.Errorf("%q: no verb and no error", line)
			}
		}
	})
}

// TestRemovedWorkingDir: reserve and start fail if the working directory was removed.
func TestRemovedWorkingDir(t *testing.T) { // it changes the working directory
	gone, err := os.MkdirTemp(t.TempDir(), "gone")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	inv := &invocation{session: &session.State{}, Command: &command.Command{Verb: &command.Verb{Name: "reserve"}}}
	if dir, err := inv.existingDir(t.Context()); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("the working directory is %q: %v", dir, err)
	}
}
