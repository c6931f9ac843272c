package hdfs

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/colinmarc/hdfs/v2"
)

// Permissions of new files and folders before the umask is applied; see hadoopconf.Conf.Umask.
const (
	folderMode fs.FileMode = 0o777
	fileMode   fs.FileMode = 0o666
	topMode    fs.FileMode = 0o755 // of a folder directly below the root, such as /user: other users must pass through it
	ownMode    fs.FileMode = 0o700 // of a private folder, whatever the umask
)

// folder creates a folder and its parents. It leaves an existing folder unchanged.
func (s *session) folder(name string, mode fs.FileMode) error {
	if _, err := s.Stat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s.MkdirAll(name, mode) // returns the appropriate error
	}
	if top, _, below := strings.Cut(strings.TrimPrefix(name, "/"), "/"); below {
		if err := s.MkdirAll("/"+top, topMode); err != nil {
			return err
		}
	}
	return s.MkdirAll(name, mode)
}

// newFile creates a file that must not exist, in an existing folder.
func (s *session) newFile(name string) (*hdfs.FileWriter, error) {
	d, err := s.ServerDefaults() // the client caches it
	if err != nil {
		return nil, err
	}
	return s.CreateFile(name, d.Replication, d.BlockSize, fileMode&^s.umask)
}
