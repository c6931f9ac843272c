package ship

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// pack writes a folder as a tar file. Links within the folder are kept; a link to a file
// elsewhere is replaced by that file. skip, which may be nil, excludes members. progress is
// called with the number of bytes read so far.
func pack(ctx context.Context, dir string, w io.Writer, most int64, skip func(name string) bool,
	progress func(int64),
) error {
	archive := tar.NewWriter(w)
	var read int64
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if skip != nil && skip(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		n, err := packOne(archive, file, name)
		if read += n; read > most {
			return fmt.Errorf("the folder is larger than %d GB: put it on storage that executors can read, "+
				"and let the program read it there", most>>30)
		}
		progress(read)
		return err
	})
	return errors.Join(err, archive.Close())
}

func packOne(archive *tar.Writer, file, name string) (int64, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return 0, err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(file); err != nil {
			return 0, err
		}
		if !staysInside(filepath.ToSlash(name), link) {
			link = ""
			if info, err = os.Stat(file); err != nil {
				return 0, fmt.Errorf("the target of the link %s does not exist: %w: remove the link, or make its target", file, err)
			}
			if info.IsDir() {
				return 0, fmt.Errorf("the link %s points to a folder outside: add that folder to --files", file)
			}
		}
	}
	if link == "" && !info.IsDir() && !info.Mode().IsRegular() {
		return 0, nil // sockets and pipes are skipped
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return 0, err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = path.Clean(filepath.ToSlash(name)), 0, 0, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if err := archive.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return 0, err
	}
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := io.CopyN(archive, f, info.Size())
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s has become shorter while it was read: repeat the command when nothing writes to it", file)
	}
	return n, err
}

// fingerprint returns a value that changes if names, sizes, modes or times of a file or folder
// change. It ignores __pycache__.
func fingerprint(ctx context.Context, top string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "__pycache__" {
			return fs.SkipDir
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := os.Lstat(file)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err := os.Stat(file); err == nil && !target.IsDir() {
				fmt.Fprintf(sum, "%d\x00%d\x00", target.Size(), target.ModTime().UnixNano())
			}
			link, err := os.Readlink(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s\x00", link)
		}
		if info.IsDir() {
			fmt.Fprintf(sum, "%s\x00%d\x00", file, info.Mode())
			return nil
		}
		fmt.Fprintf(sum, "%s\x00%d\x00%d\x00%d\x00", file, info.Size(), info.Mode(), info.ModTime().UnixNano())
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}
