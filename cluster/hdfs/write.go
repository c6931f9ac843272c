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

// asidePrefix begins the names of files that are being written. They are not listed,
// and readers of event files do not take them for theirs.
const asidePrefix = "._tfcluster_"

// Write makes a file of what r holds from its beginning on, with its parents. Readers
// see the old file or the new one, never a part.
func (f *FS) Write(ctx context.Context, name string, r io.ReadSeeker) error {
	token := rand.Text()
	return f.do(ctx, "write", name, func(s *session, name string) error { return s.replace(name, token, r) })
}

// replace writes aside, then renames. The token makes the aside's name, the same each
// time it is tried.
func (s *session) replace(name, token string, r io.ReadSeeker) error {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return localError{fmt.Errorf("read again what is to be written: %w", err)}
	}
	aside := path.Join(path.Dir(name), asidePrefix+token)
	w, err := s.create(aside)
	if err != nil {
		return err
	}
	err = s.fill(w, r)
	if err == nil {
		err = s.Rename(aside, name)
	}
	if err != nil && refused(err) {
		err = errors.Join(err, s.removeQuietly(aside))
	}
	return err
}

// create opens a new file, whose parents it makes where there are none. One of the
// same name is from an attempt before.
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

// fill copies and closes. Close is asked again while DataNodes have not told the
// NameNode of the last block.
func (s *session) fill(w *hdfs.FileWriter, r io.Reader) error {
	_, err := io.Copy(w, localReader{r})
	if err != nil {
		_ = w.Close() // the first error tells more
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

// removeQuietly ends what is left of a write that was refused, as far as possible.
func (s *session) removeQuietly(name string) error {
	if err := s.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !refused(err) {
		return err
	}
	return nil
}

// localReader marks the errors of what is read here.
type localReader struct{ r io.Reader }

func (l localReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if err != nil && err != io.EOF {
		err = localError{fmt.Errorf("read what is to be written: %w", err)}
	}
	return n, err
}

// isAside says that a name is of a file that is being written.
func isAside(name string) bool { return strings.HasPrefix(path.Base(name), asidePrefix) }
