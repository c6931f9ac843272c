package ship

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archiveOf writes content to a file and opens it.
func archiveOf(t testing.TB, content []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// tarOf returns a tar of members; the content of a file is its name.
func tarOf(t testing.TB, members ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o640
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
}

// TestHostileArchives: Unpack creates nothing outside of the folder, and no link that leads
// there.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	file := func(name string) tar.Header { return tar.Header{Name: name} }
	for _, c := range []struct {
		name, want string // want "": success
		members    []tar.Header
	}{
		{"plain", "", []tar.Header{dir("a"), file("a/b"), link("a/c", "b"), link("d", "a/b"), link("a/up", "../d")}},
		{"no folder members", "", []tar.Header{file("./x/y/z")}},
		{"a hard link", "", []tar.Header{file("a"), {Name: "b", Linkname: "a", Typeflag: tar.TypeLink}}},
		{"twice", "", []tar.Header{file("a"), file("a")}},
		{"above", `"../evil", which is outside`, []tar.Header{file("../evil")}},
		{"above, later", `"a/../../evil", which is outside`, []tar.Header{file("a/../../evil")}},
		{"absolute", `"/evil", which is outside`, []tar.Header{file("/evil")}},
		{"a link above", "points out of the folder", []tar.Header{link("l", "../../evil")}},
		{"an absolute link", "points out of the folder", []tar.Header{link("l", "/etc/passwd")}},
		{"below a link", "as a folder and as something else", []tar.Header{dir("a"), link("l", "a"), file("l/x")}},
		{"a link through a link", "points out of the folder", []tar.Header{link("here", "."), link("l", "here/../../evil")}},
		{"a way back through a link", "points out of the folder", []tar.Header{link("here", "."), link("l", "here/../x")}},
		{"a hard link above", `is outside`, []tar.Header{{Name: "b", Linkname: "../evil", Typeflag: tar.TypeLink}}},
		{"a hard link through a link", "something else", []tar.Header{
			dir("a"), link("l", "a"), {Name: "b", Linkname: "l/x", Typeflag: tar.TypeLink},
		}},
		{"over a link", "", []tar.Header{file("a"), link("l", "a"), file("l")}},
		{"a device", "not a file, folder or link", []tar.Header{
			{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		}},
		{"a file as the folder", "not a valid file name", []tar.Header{file(".")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			evil, into := filepath.Join(top, "evil"), filepath.Join(top, "into")
			if err := os.WriteFile(evil, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Unpack(t.Context(), archiveOf(t, tarOf(t, c.members...)), formTar, into, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			staysBelow(t, into)
			if b, err := os.ReadFile(evil); string(b) != "mine" {
				t.Errorf("the file next to the folder is %q, %v", b, err)
			}
			if left, err := os.ReadDir(top); err != nil || len(left) != 2 {
				t.Errorf("next to the folder are %v, %v", left, err)
			}
		})
	}
}

// staysBelow fails the test if a link below dir leads out of it.
func staysBelow(t testing.TB, dir string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		if to, err := filepath.EvalSymlinks(path); err == nil && to != top && !strings.HasPrefix(to, top+"/") {
			t.Errorf("%s leads to %s", path, to)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// FuzzUnpack: with any names and link targets of three members, Unpack stays inside the folder.
func FuzzUnpack(f *testing.F) {
	f.Add("a", "b", "a/c", "../x", "l", "a/c/../..")
	f.Add("here", ".", "l", "here/../x", "l/x", "")
	f.Add("a/b", "..", "a/b/../../e", "", "..", "/")
	f.Fuzz(func(t *testing.T, name1, to1, name2, to2, name3, to3 string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, m := range [][2]string{{name1, to1}, {name2, to2}, {name3, to3}} {
			h := tar.Header{Name: m[0], Linkname: m[1], Typeflag: tar.TypeSymlink, Mode: 0o644}
			if m[1] == "" {
				h.Typeflag = tar.TypeReg
			}
			if w.WriteHeader(&h) != nil {
				return // tar cannot represent it
			}
		}
		if w.Close() != nil {
			return
		}
		top := t.TempDir()
		into := filepath.Join(top, "into")
		_ = Unpack(t.Context(), archiveOf(t, b.Bytes()), formTar, into, nil) // may be rejected
		staysBelow(t, into)
		if left, err := os.ReadDir(top); err != nil || len(left) != 1 {
			t.Errorf("next to the folder are %v, %v", left, err)
		}
	})
}

// TestForms: a folder packed in each form is unpacked to the same files.
func TestForms(t *testing.T) {
	t.Parallel()
	plain := tarOf(t, tar.Header{Name: "bin/run", Mode: 0o755}, tar.Header{Name: "data/x"})
	var zipped, packed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(plain); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	p := zip.NewWriter(&packed)
	for name, mode := range map[string]fs.FileMode{"bin/run": 0o755, "data/x": 0o640} {
		h := &zip.FileHeader{Name: name}
		h.SetMode(mode)
		w, err := p.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for form, content := range map[string][]byte{formTar: plain, formTarGz: zipped.Bytes(), formZip: packed.Bytes()} {
		dir := t.TempDir()
		if err := Unpack(t.Context(), archiveOf(t, content), form, dir, nil); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		for _, name := range []string{"bin/run", "data/x"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != name {
				t.Errorf("%s: %s is %q, %v", form, name, b, err)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, "bin/run")); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: bin/run: %v, %v", form, info, err)
		}
		if err := Unpack(t.Context(), archiveOf(t, content[:len(content)*2/5]), form, t.TempDir(), nil); err == nil {
			t.Errorf("a truncated %s is unpacked without an error", form)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  string
		names []string
	}{
		{"", []string{"a", "b/c", "a-b", "b/d"}},
		{"two files have the name a", []string{"a", "b", "a"}},
		{"a/b would be inside a", []string{"a", "a-b", "a/b"}},
		{"not a path below", []string{"../a"}},
		{"not a path below", []string{"/a"}},
		{"not a path below", []string{"a/./b"}},
		{"not a path below", []string{""}},
	} {
		if err := CheckNames(c.names); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.names, err, c.want)
		}
	}
}
