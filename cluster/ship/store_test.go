package ship

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// place copies a content of a Store into a folder, as an agent does.
func place(t testing.TB, d *Store, s *clusterpb.Shipped, dir string) error {
	t.Helper()
	from, err := d.Open(s.GetContent().GetSha256())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	b, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return Place(t.Context(), archiveOf(t, b).Name(), s, dir)
}

// TestFiles: files and folders are transferred unchanged, are read once, and again after a
// change.
func TestFiles(t *testing.T) {
	t.Parallel()
	from, d := t.TempDir(), NewStore(filepath.Join(t.TempDir(), "depot"), t.TempDir())
	outside := write(t, filepath.Join(t.TempDir(), "elsewhere"), "far")
	one := write(t, filepath.Join(from, "one.txt"), "one")
	write(t, filepath.Join(from, "folder/sub/two"), "two")
	for name, target := range map[string]string{"near": "sub/two", "far": outside} {
		if err := os.Symlink(target, filepath.Join(from, "folder", name)); err != nil {
			t.Fatal(err)
		}
	}
	given := []*clusterpb.GivenFile{{Path: one, Name: "conf/1"}, {Path: filepath.Join(from, "folder"), Name: "folder"}}
	first, err := d.Files(t.Context(), given)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, s := range first {
		if err := place(t, d, s, dir); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{
		"conf/1": "one", "folder/sub/two": "two", "folder/near": "two", "folder/far": "far",
	} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	kept := func() []string {
		names, err := filepath.Glob(filepath.Join(d.dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return names
	}
	before, stamp := kept(), modified(t, kept()[0])
	if _, err := d.Files(t.Context(), given); err != nil || !slices.Equal(kept(), before) ||
		modified(t, before[0]) != stamp {
		t.Errorf("an unchanged file was read again: %v, %q, was %q", err, kept(), before)
	}
	write(t, one, "another one")
	second, err := d.Files(t.Context(), given)
	if err != nil || second[0].GetContent().GetSha256() == first[0].GetContent().GetSha256() || len(kept()) != 2 {
		t.Errorf("changed file: %v, %v; stored are %q", second, err, kept())
	}
	if _, err := d.Open(first[0].GetContent().GetSha256()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old content still exists: %v", err)
	}
	if _, err := d.Open("../" + filepath.Base(kept()[0])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open accepts a path: %v", err)
	}
}

func modified(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime().UnixNano()
}

// TestInvalidFiles: errors have one line and name the file.
func TestInvalidFiles(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	big := write(t, filepath.Join(from, "big"), "")
	if err := os.Truncate(big, MaxFile+1); err != nil {
		t.Skipf("missing: a file system with sparse files: %v", err)
	}
	loose := filepath.Join(from, "folder", "loose")
	write(t, filepath.Join(from, "folder", "x"), "x")
	if err := os.Symlink("/nowhere", loose); err != nil {
		t.Fatal(err)
	}
	d := NewStore(filepath.Join(t.TempDir(), "depot"), t.TempDir())
	for path, want := range map[string]string{
		big:                           "more than the limit of 4 GiB",
		filepath.Join(from, "folder"): "does not exist",
		filepath.Join(from, "none"):   "no such file",
		"/dev/null":                   "neither a file nor a folder",
	} {
		_, err := d.Files(t.Context(), []*clusterpb.GivenFile{{Path: path, Name: "x"}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestArchiveByLink: an archive to unpack has the form that its given name says, also where that name is a link to a
// file of another one, as in the caches of DVC and Hugging Face.
func TestArchiveByLink(t *testing.T) {
	t.Parallel()
	from, d := t.TempDir(), NewStore(filepath.Join(t.TempDir(), "depot"), t.TempDir())
	link := filepath.Join(from, "pages.tar")
	if err := os.Symlink(write(t, filepath.Join(from, "blob"), string(tarOf(t, tar.Header{Name: "one"}))),
		link); err != nil {
		t.Fatal(err)
	}
	all, err := d.Files(t.Context(), []*clusterpb.GivenFile{{Path: link, Name: "pages", Unpack: true}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = place(t, d, all[0], dir)
	if b, rerr := os.ReadFile(filepath.Join(dir, "pages/one")); err != nil || string(b) != "one" {
		t.Errorf("pages/one is %q: %v, %v", b, err, rerr)
	}
}
