package hdfs

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/colinmarc/hdfs/v2"
)

// Permissions of what is made before the umask is taken off: see hadoopconf's Umask.
const (
	folderMode fs.FileMode = 0o777
	fileMode   fs.FileMode = 0o666
	topMode    fs.FileMode = 0o755 // of a folder below the root, such as /user, on the way to others' too
	ownMode    fs.FileMode = 0o700 // of a folder that is for its owner, whatever the umask
)

// folder makes a folder with its parents. One that exists stays as it is.
func (s *session) folder(name string, mode fs.FileMode) error {
	if _, err := s.Stat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s.MkdirAll(name, mode) // which says what it is
	}
	if top, _, below := strings.Cut(strings.TrimPrefix(name, "/"), "/"); below {
		if err := s.MkdirAll("/"+top, topMode); err != nil {
			return err
		}
	}
	return s.MkdirAll(name, mode)
}

// newFile opens a file that must not exist, in a folder that does.
func (s *session) newFile(name string) (*hdfs.FileWriter, error) {
	d, err := s.ServerDefaults() // asked for once by each client
	if err != nil {
		return nil, err
	}
	return s.CreateFile(name, d.Replication, d.BlockSize, fileMode&^s.umask)
}
