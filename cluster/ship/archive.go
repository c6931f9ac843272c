package ship

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Archive forms in Shipped.Form; a plain file has none.
const (
	formTar   = "tar"
	formTarGz = "tar.gz"
	formZip   = "zip"
)

// endings are the file name extensions of archives that can be unpacked.
var endings = []struct {
	ending, form string
}{{".tar.gz", formTarGz}, {".tgz", formTarGz}, {".tar", formTar}, {".zip", formZip}}

// formOf returns the form of an archive by its file name, and the name without the extension.
func formOf(name string) (form, stem string, ok bool) {
	for _, e := range endings {
		if stem, found := strings.CutSuffix(name, e.ending); found && stem != "" {
			return e.form, stem, true
		}
	}
	return "", name, false
}

// Limits of an archive.
const (
	maxUnpacked = 64 << 30 // bytes
	maxEntries  = 2_000_000
	maxTarget   = 4096 // length of a link's target in bytes
)

// entry is one member of an archive.
type entry struct {
	name    string
	mode    fs.FileMode
	link    string // target of a symbolic or hard link
	hard    bool
	content io.Reader // of a regular file
	changed time.Time // modification time: Python uses a .pyc file only if it matches its source's
}

// eachEntry calls visit for each member of an archive, in order.
func eachEntry(f *os.File, form string, visit func(entry) error) error {
	switch form {
	case formTar:
		return eachTar(bufio.NewReaderSize(f, 1<<20), visit)
	case formTarGz:
		z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<20))
		if err != nil {
			return fmt.Errorf("the archive is not a gzip file: %w; make it again", err)
		}
		return eachTar(z, visit)
	case formZip:
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return eachZip(f, info.Size(), visit)
	}
	return fmt.Errorf("the archive has the form %q: make a .zip, .tar, .tar.gz or .tgz", form)
}

func eachTar(r io.Reader, visit func(entry) error) error {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive is not a complete tar file: %w; make it again", err)
		}
		e := entry{name: h.Name, mode: h.FileInfo().Mode(), link: h.Linkname, content: archive, changed: h.ModTime}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeGNUSparse:
		case tar.TypeLink:
			e.hard = true
		case tar.TypeXGlobalHeader:
			continue
		default:
			return notFile(h.Name)
		}
		if err := visit(e); err != nil {
			return err
		}
	}
}

func notFile(name string) error {
	return fmt.Errorf("the archive contains %q, which is not a file, folder or link: make the archive without it", name)
}

func eachZip(r io.ReaderAt, size int64, visit func(entry) error) error {
	archive, err := zip.NewReader(r, size)
	if err != nil {
		return fmt.Errorf("the archive is not a zip file: %w; make it again", err)
	}
	for _, f := range archive.File {
		if err := oneOfZip(f, visit); err != nil {
			return err
		}
	}
	return nil
}

func oneOfZip(f *zip.File, visit func(entry) error) error {
	e := entry{name: f.Name, mode: f.Mode(), changed: f.Modified}
	if kind := e.mode.Type(); kind&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return notFile(f.Name)
	}
	if e.mode.IsDir() {
		return visit(e)
	}
	content, err := f.Open()
	if err != nil {
		return fmt.Errorf("read %q: %w", f.Name, err)
	}
	defer content.Close()
	e.content = content
	if e.mode&fs.ModeSymlink != 0 {
		target, err := io.ReadAll(io.LimitReader(content, maxTarget+1))
		if err != nil {
			return fmt.Errorf("read %q: %w", f.Name, err)
		}
		e.link = string(target)
	}
	return visit(e)
}

// Unpack unpacks an archive into the folder dir, which it creates. It rejects a path outside of
// the folder, a link that points out of it, and a member below a link. If leaveOut is not nil
// and returns true for a link that points out of the folder, the link is skipped instead.
func Unpack(ctx context.Context, f *os.File, form, dir string, leaveOut func(name string) bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{
		ctx: ctx, root: root, left: maxUnpacked, entries: maxEntries, leaveOut: leaveOut, folders: map[string]bool{".": true},
	}
	defer u.leave()
	return eachEntry(f, form, u.place)
}

type unpacker struct {
	ctx      context.Context
	root     *os.Root
	left     int64
	entries  int
	leaveOut func(name string) bool
	folders  map[string]bool // folders verified not to be links

	// The opened folder of the last member, to avoid walking the path from root for each one.
	in   *os.Root
	name string
}

// enter makes an existing folder the one into which members are placed.
func (u *unpacker) enter(name string) error {
	if u.in != nil && u.name == name {
		return nil
	}
	u.leave()
	in, err := u.root.OpenRoot(name)
	if err != nil {
		return err
	}
	u.in, u.name = in, name
	return nil
}

func (u *unpacker) leave() {
	if u.in != nil {
		u.in.Close()
		u.in = nil
	}
}

func (u *unpacker) place(e entry) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.entries--; u.entries < 0 {
		return fmt.Errorf("the archive contains more than %d files: put it on storage that executors can read, "+
			"and let the program read it there", maxEntries)
	}
	name, err := inside(e.name)
	if err != nil {
		return err
	}
	if e.mode.IsDir() && !e.hard {
		return u.folder(name)
	}
	if name == "." {
		return fmt.Errorf("the archive contains the name %q, which is not a valid file name: make the archive again", e.name)
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	switch {
	case e.hard:
		old, err := inside(e.link)
		if err != nil {
			return err
		}
		if err := u.folder(path.Dir(old)); err != nil {
			return err
		}
		return errors.Join(u.clear(name), u.root.Link(old, name))
	case e.mode&fs.ModeSymlink != 0:
		return u.link(name, e.link)
	}
	return u.file(name, e)
}

// link creates a symbolic link.
func (u *unpacker) link(name, target string) error {
	if !staysInside(name, target) {
		if u.leaveOut != nil && u.leaveOut(name) {
			return nil
		}
		return fmt.Errorf("the link %q points out of the folder, to %q: pack what it points to", name, target)
	}
	return errors.Join(u.clear(name), u.in.Symlink(target, path.Base(name)))
}

func (u *unpacker) file(name string, e entry) error {
	base := path.Base(name)
	create := func() (*os.File, error) {
		return u.in.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, e.mode.Perm()|0o600)
	}
	f, err := create()
	if errors.Is(err, fs.ErrExist) {
		if err = u.clear(name); err == nil {
			f, err = create()
		}
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(e.content, u.left+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	if u.left -= n; u.left < 0 {
		return fmt.Errorf("the archive contains more than %d GB: put it on storage that executors can read, "+
			"and let the program read it there", int64(maxUnpacked)>>30)
	}
	return u.in.Chtimes(base, e.changed, e.changed)
}

// clear removes an earlier member of the same name, so that files are never written through
// links.
func (u *unpacker) clear(name string) error {
	base := path.Base(name)
	if info, err := u.in.Lstat(base); err != nil || info.IsDir() {
		return nil // the caller's next operation reports it
	}
	return u.in.Remove(base)
}

// folder creates a folder and its parents. None of them may be a link.
func (u *unpacker) folder(name string) error {
	if u.folders[name] {
		return nil
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	switch info, err := u.root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		if err := u.root.Mkdir(name, 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("the archive contains %q twice, as a folder and as something else: make the archive again", name)
	}
	u.folders[name] = true
	return nil
}

// inside returns a member's cleaned path, or an error if it is outside of the target folder.
func inside(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || strings.ContainsRune(name, 0) || path.IsAbs(name) || !filepath.IsLocal(clean) {
		return "", fmt.Errorf(
			"the archive contains the path %q, which is outside of its folder: make it again, with relative paths", name)
	}
	return clean, nil
}

// staysInside reports whether a link in a real folder points to a path below the top. It
// rejects ".." after another name, because that name may be a link.
func staysInside(name, target string) bool {
	if target == "" || len(target) > maxTarget || strings.ContainsRune(target, 0) || path.IsAbs(target) {
		return false
	}
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if down {
				return false
			}
		default:
			down = true
		}
	}
	return filepath.IsLocal(path.Join(path.Dir(name), target))
}
