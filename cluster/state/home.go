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

// Home returns the folder with the state of this user's clusters on this host. A base folder
// shared by several hosts has one folder per host.
func Home() (string, error) {
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

// stateBase returns Home without the host.
func stateBase() (string, error) {
	if base := os.Getenv("TFCLUSTER_HOME"); base != "" {
		return base, nil
	}
	if x := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "tfcluster"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf(
			"there is no folder for the state of clusters: %w; set HOME, or TFCLUSTER_HOME to a folder that you may write", err)
	}
	return filepath.Join(home, defaultBase), nil
}

// defaultBase is the default of stateBase, below the user's home.
const defaultBase = ".local/state/tfcluster"

// customBase returns stateBase, or "" if it is the user's default. Several people may share an
// account with different home folders; their clusters may have the same names.
func customBase() string {
	base, err := stateBase()
	if err != nil || os.Getenv("TFCLUSTER_HOME") != "" {
		return os.Getenv("TFCLUSTER_HOME")
	}
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	// If the user is unknown, the default cannot be determined.
	if err != nil || base == filepath.Join(u.HomeDir, defaultBase) {
		return ""
	}
	return base
}

// Dir returns the folder of a cluster.
func Dir(name string) (string, error) {
	if err := cluster.CheckName(name); err != nil {
		return "", err
	}
	home, err := Home()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, name), nil
}

// A socket's path holds maxSocketPath bytes. The longest one below a cluster's socket folder is a
// zygote's, and a folder needs minSocketFolder bytes to be told apart from others.
const (
	maxSocketPath   = 107
	longestSocket   = len("/agents-12345678/zygote-0123456789abcdef.sock")
	minSocketFolder = len("/n-01234567")
	maxRuntimeDir   = maxSocketPath - longestSocket - minSocketFolder
)

// RuntimeDir returns the folder of this user's sockets: $XDG_RUNTIME_DIR/tfcluster, $TMPDIR/tfcluster-UID,
// or, if those paths are too long for sockets, /tmp/tfcluster-UID. It is created with mode 0700, and
// refused if it is a link or belongs to another user. Another state folder has another runtime folder,
// because its clusters may have the same names.
func RuntimeDir() (string, error) {
	below := ""
	if home := customBase(); home != "" {
		sum := sha256.Sum256([]byte(home))
		below = "home-" + hex.EncodeToString(sum[:4])
	}
	own := "tfcluster-" + strconv.Itoa(os.Getuid())
	dir := filepath.Join(os.TempDir(), own)
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) && len(filepath.Join(x, "tfcluster", below)) <= maxRuntimeDir {
		if fi, err := os.Stat(x); err == nil && fi.IsDir() {
			dir = filepath.Join(x, "tfcluster")
		}
	}
	if len(filepath.Join(dir, below)) > maxRuntimeDir {
		dir = filepath.Join("/tmp", own)
	}
	if err := privateDir(dir); err != nil || below == "" {
		return dir, err
	}
	dir = filepath.Join(dir, below)
	return dir, privateDir(dir)
}

// SocketDir returns the folder of a cluster's sockets below RuntimeDir. Its name is the cluster's, or, if
// that is too long for sockets, the beginning of it and a digest. It is not created.
func SocketDir(name string) (string, error) {
	runtime, err := RuntimeDir()
	if err != nil {
		return "", err
	}
	room := maxSocketPath - longestSocket - len(runtime) - len("/")
	if len(name) > room {
		sum := sha256.Sum256([]byte(name))
		digest := "-" + hex.EncodeToString(sum[:4])
		name = name[:room-len(digest)] + digest
	}
	return filepath.Join(runtime, name), nil
}

// privateDir creates a folder for this user only, or checks that it is one.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the folder for sockets: %w; set XDG_RUNTIME_DIR to a folder that you may write", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder for sockets: %w; set XDG_RUNTIME_DIR to a folder that you may write", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of this user: remove it, or set XDG_RUNTIME_DIR to a folder of this user", dir)
	}
	if fi.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("keep other users out of %s: %w; set XDG_RUNTIME_DIR to a folder on a local disk", dir, err)
		}
	}
	return nil
}

// HostSocket returns the path at which the process that holds an engine's session for a cluster, such as
// the notebook with its SparkSession, dials the driver of the cluster.
func HostSocket(name string) (string, error) {
	dir, err := SocketDir(name)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "host.sock"), nil
}
