package verbs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestGivenFiles: PATH[::NAME][#archive].
func TestGivenFiles(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, name := range []string{"a.txt", "b.tar.gz", "c#archive"} {
		if err := os.WriteFile(filepath.Join(base, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ given, path, name, problem string }{
		{"a.txt", "a.txt", "a.txt", ""},
		{"./folder/", "folder", "folder", ""},
		{"a.txt::conf/b.txt", "a.txt", "conf/b.txt", ""},
		{"folder::data/", "folder", "data", ""},
		{"b.tar.gz", "b.tar.gz", "b.tar.gz", ""},
		{"b.tar.gz#archive", "b.tar.gz", "b", ""},
		{"b.tar.gz::data#archive", "b.tar.gz", "data", ""},
		{"c#archive#archive", "", "", "#archive unpacks .zip, .tar, .tar.gz and .tgz only"},
		{"none", "", "", "there is no " + filepath.Join(base, "none")},
		{"folder#archive", "", "", "a folder is copied as it is"},
		{"a.txt::../x", "", "", "not a path below"},
		{"a.txt::/x", "", "", "not a path below"},
		{"a.txt::", "", "", "not a path below"},
	} {
		got, err := givenFile(c.given, base)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, %v, want %q", c.given, got, err, c.problem)
			}
			continue
		}
		want := &clusterpb.GivenFile{
			Path: filepath.Join(base, c.path), Name: c.name, Unpack: strings.HasSuffix(c.given, unpackMark),
		}
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", c.given, got, err, want)
		}
	}
}

// TestPathErrors: only a path that does not exist is said to be none.
func TestPathErrors(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "a.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shipped := func(here bool) func(*invocation) error {
		return func(inv *invocation) error {
			return inv.shipping(&clusterpb.ReserveRequest{}, cluster.Engine{OnThisHost: here}, base)
		}
	}
	script := func(inv *invocation) error {
		_, err := inv.script(t.Context(), inv.Program, "", nil)
		return err
	}
	table := NewSet(engines()).Table
	for _, c := range []struct {
		argv []string
		do   func(*invocation) error
		what string
	}{
		{[]string{"reserve", "--py-files"}, shipped(true), "--py-files: "},
		{[]string{"reserve", "--files"}, shipped(true), "--files: "},
		{[]string{"reserve", "--venv"}, shipped(true), "--venv: "},
		{[]string{"reserve", "--files"}, shipped(false), "--files "},
		{[]string{"start"}, script, "script "},
	} {
		for path, want := range map[string]string{
			"none.py": "there is no ", "a.txt/b.py": "b.py cannot be read: not a directory",
		} {
			command, err := table.Argv(append(slices.Clone(c.argv), path), false)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.do(&invocation{Command: command, dir: base}); err == nil || !strings.Contains(err.Error(), c.what) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v %s: %v, want %q", c.argv, path, err, want)
			}
		}
	}
}

// TestTheNotebooksEnvironment is what --venv . packs.
func TestTheNotebooksEnvironment(t *testing.T) {
	dir := t.TempDir()
	python := filepath.Join(dir, "bin", "python3")
	if err := errors.Join(os.Mkdir(filepath.Dir(python), 0o700),
		os.WriteFile(python, nil, 0o700)); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	if got := environmentOf(python); got != "" {
		t.Errorf("a Python of no environment is of %s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := environmentOf(python); got != dir {
		t.Errorf("it is of %q", got)
	}
	t.Setenv("PATH", filepath.Dir(python)) // as in a shell in which the environment is activated
	if got := environmentOf("python3"); got != dir {
		t.Errorf("the name is of %q", got)
	}
}

// TestOtherFilesDiffer: a cluster that carries other things is another, and it is said
// in what they differ.
func TestOtherFilesDiffer(t *testing.T) {
	t.Parallel()
	have := &clusterpb.ReserveRequest{
		Backend: "spark", Files: []string{"a"}, Ship: []*clusterpb.GivenFile{{Path: "/x/a", Name: "a"}}, Venv: "/v",
		ShipEnvironment: "/v",
	}
	if !same(have, proto.CloneOf(have)) {
		t.Error("equal requests differ")
	}
	for want, change := range map[string]func(*clusterpb.ReserveRequest){
		"files": func(r *clusterpb.ReserveRequest) {
			r.Files, r.Ship = []string{"b"}, []*clusterpb.GivenFile{{Path: "/x/b", Name: "b"}}
		},
		"venv": func(r *clusterpb.ReserveRequest) { r.Venv, r.ShipEnvironment = "", "" },
	} {
		other := proto.CloneOf(have)
		change(other)
		if got := differences(have, other); same(have, other) || got != want {
			t.Errorf("they differ in %q, want %q", got, want)
		}
	}
}
