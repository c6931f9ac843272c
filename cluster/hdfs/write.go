package hdfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/colinmarc/hdfs/v2"
)

// tempPrefix begins the names of files that are being written. List omits them, and readers of
// event files ignore them.
const tempPrefix = "._tfcluster_"

// Write writes all of r to a file and creates its parents if necessary. Readers see the old or
// the new contents, never a part.
func (f *FS) Write(ctx context.Context, name string, r io.ReadSeeker) error {
	token := rand.Text()
	return f.do(ctx, "write", name, func(s *session, name string) error { return s.replace(name, token, r) })
}

// replace writes a temporary file and renames it. The token is part of the temporary name, so
// that a retry replaces the file of the attempt before.
func (s *session) replace(name, token string, r io.ReadSeeker) error {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return localError{fmt.Errorf("rewind the data to write: %w", err)}
	}
	temp := path.Join(path.Dir(name), tempPrefix+token)
	w, err := s.create(temp)
	if err != nil {
		return err
	}
	err = s.fill(w, r)
	if err == nil {
		err = s.Rename(temp, name)
	}
	if err != nil && answered(err) {
		if rerr := s.Remove(temp); rerr != nil && !answered(rerr) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// create creates a file, and its parents if necessary. An existing file of that name is left
// from a previous attempt.
func (s *session) create(name string) (*hdfs.FileWriter, error) {
	w, err := s.newFile(name)
	if errors.Is(err, fs.ErrExist) {
		if err := s.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		w, err = s.newFile(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.folder(path.Dir(name), folderMode&^s.umask); err != nil {
			return nil, err
		}
		w, err = s.newFile(name)
	}
	return w, err
}

// fill copies r and closes w. Close is repeated until the DataNodes have reported the last
// block to the NameNode.
func (s *session) fill(w *hdfs.FileWriter, r io.Reader) error {
	_, err := io.Copy(w, localReader{r})
	if err != nil {
		_ = w.Close() // the first error is more specific
		return err
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err = w.Close()
		if !hdfs.IsErrReplicating(err) {
			return err
		}
		select {
		case <-s.ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// localReader marks errors of the data source as local.
type localReader struct{ r io.Reader }

func (l localReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if err != nil && err != io.EOF {
		err = localError{fmt.Errorf("read the data to write: %w", err)}
	}
	return n, err
}

// isTemp reports whether a name is that of a file being written.
func isTemp(name string) bool { return strings.HasPrefix(path.Base(name), tempPrefix) }
