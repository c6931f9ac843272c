package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster"
)

// StateHome is where clusters of this user on this host keep their state. A home
// shared by several hosts holds one folder a host.
func StateHome() (string, error) {
	base, err := stateBase()
	if err != nil {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return filepath.Join(base, filepath.Base(host)), nil
}

// stateBase is StateHome without the host.
func stateBase() (string, error) {
	if base := os.Getenv("TFCLUSTER_HOME"); base != "" {
		return base, nil
	}
	if x := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "tfcluster"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the state folder: %w; set TFCLUSTER_HOME", err)
	}
	return filepath.Join(home, ownBase), nil
}

// ownBase is stateBase below a user's home, where nobody chose another.
const ownBase = ".local/state/tfcluster"

// anotherBase is stateBase where it is not the user's own: people behind one account, each
// with a home of his own, have clusters of the same names.
func anotherBase() string {
	base, err := stateBase()
	if err != nil || os.Getenv("TFCLUSTER_HOME") != "" {
		return os.Getenv("TFCLUSTER_HOME")
	}
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil || base == filepath.Join(u.HomeDir, ownBase) { // the default of a user who is not known cannot be compared
		return ""
	}
	return base
}

// StateDir is a cluster's own folder.
func StateDir(name string) (string, error) {
	if err := cluster.CheckName(name); err != nil {
		return "", err
	}
	home, err := StateHome()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, name), nil
}

// RuntimeDir is where this user's sockets are: $XDG_RUNTIME_DIR/tfcluster, else
// /tmp/tfcluster-UID. It is ours alone: made 0700, refused when it is a link or
// another user's.
func RuntimeDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "tfcluster-"+strconv.Itoa(os.Getuid()))
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		if fi, err := os.Stat(x); err == nil && fi.IsDir() && len(x) < 60 {
			dir = filepath.Join(x, "tfcluster")
		}
	}
	if len(dir) > 60 { // a socket's path holds 107 bytes in all
		dir = "/tmp/tfcluster-" + strconv.Itoa(os.Getuid())
	}
	if err := privateDir(dir); err != nil {
		return "", err
	}
	home := anotherBase()
	if home == "" {
		return dir, nil
	}
	// Clusters of another state folder may have the same names.
	sum := sha256.Sum256([]byte(home))
	dir = filepath.Join(dir, "home-"+hex.EncodeToString(sum[:4]))
	return dir, privateDir(dir)
}

// privateDir makes a folder of this user's alone, or checks that it is one.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the folder for sockets: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder for sockets: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of this user's: remove it, or set XDG_RUNTIME_DIR to one that is", dir)
	}
	if fi.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("make %s private: %w", dir, err)
		}
	}
	return nil
}

// HostSocket is where the process that holds an engine's session for a cluster, such
// as the notebook with its SparkSession, dials the cluster's driver.
func HostSocket(name string) (string, error) {
	base, err := RuntimeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, name, "host.sock"), nil
}
