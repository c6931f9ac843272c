package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// State is what outlives a driver: enough to find it, and for another to take over.
// It lies in a 0600 file, since it holds the authority's key.
type State struct {
	Name       string          `json:"name"`
	Backend    string          `json:"backend"`
	Owner      string          `json:"owner"`
	Socket     string          `json:"socket"`
	Dir        string          `json:"dir"`
	Since      time.Time       `json:"since"`
	Driver     Process         `json:"driver"`
	Allocation string          `json:"allocation"`
	Saved      json.RawMessage `json:"saved,omitempty"`
	Request    json.RawMessage `json:"request"`
	Address    string          `json:"address"` // where agents dial
	CertPEM    string          `json:"cert_pem"`
	KeyPEM     string          `json:"key_pem"`
	LastRun    int32           `json:"last_run"`
	Earlier    int32           `json:"earlier,omitempty"` // the last run that its directory held before its first driver
	Detached   bool            `json:"detached"`
	Version    string          `json:"version"`
}

// hosted is whether the engine was asked to run the cluster's driver, and has been.
func (s *State) hosted() bool {
	r, err := s.ReserveRequest()
	return err == nil && r.GetEngine()[EngineManaged] != "" && s.Allocation != ""
}

// EngineManaged is the key of a request that wants its driver run by the engine.
const EngineManaged = "managed"

// Process identifies a process beyond its pid, which the system re-uses: by the
// machine's boot and the moment it was started.
type Process struct {
	PID   int    `json:"pid"`
	Boot  string `json:"boot"`
	Start uint64 `json:"start"` // clock ticks since boot, /proc/PID/stat field 22
}

// ThisProcess identifies the caller.
func ThisProcess() Process { return ProcessOf(os.Getpid()) }

// ProcessOf identifies a process of this machine.
func ProcessOf(pid int) Process {
	return Process{PID: pid, Boot: bootID(), Start: startTime(pid)}
}

// Alive is whether that very process still runs.
func (p Process) Alive() bool {
	return p.PID > 0 && p.Boot == bootID() && p.Start != 0 && startTime(p.PID) == p.Start
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// startTime is 0 for a process that is gone or a zombie.
func startTime(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return 0
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0
	}
	n, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

var clusterName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
})

// CheckName says whether a cluster may be called so: the name becomes a folder.
func CheckName(name string) error {
	if !clusterName().MatchString(name) {
		return fmt.Errorf("cluster name %q: want letters, digits, '.', '_' and '-', at most 63, beginning with a letter or digit", name)
	}
	return nil
}

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
	if err := CheckName(name); err != nil {
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

// WriteFile writes aside and renames, so that a reader finds the old or the new
// content and never half of it. The file is for its owner alone.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error to tell is the first one
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Save writes the state into the cluster's folder.
func (s *State) Save() error {
	dir, err := StateDir(s.Name)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return WriteFile(filepath.Join(dir, "state.json"), b)
}

// LoadState reads a cluster's state; os.ErrNotExist when there is no such cluster.
func LoadState(name string) (*State, error) {
	dir, err := StateDir(name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return nil, fmt.Errorf("read state of cluster %s: %w", name, err)
	}
	s := &State{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read state of cluster %s: %w", name, err)
	}
	return s, nil
}

// ReserveRequest is the request as it was given.
func (s *State) ReserveRequest() (*clusterpb.ReserveRequest, error) {
	r := &clusterpb.ReserveRequest{}
	if err := protojson.Unmarshal(s.Request, r); err != nil {
		return nil, fmt.Errorf("read the request of cluster %s: %w", s.Name, err)
	}
	return r, nil
}

// States lists every cluster of this user on this host, oldest first. Folders
// without a readable state are left out.
func States() ([]*State, error) {
	home, err := StateHome()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(home)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	var states []*State
	for _, e := range entries {
		if s, err := LoadState(e.Name()); err == nil {
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b *State) int { return a.Since.Compare(b.Since) })
	return states, nil
}

// Forget removes a cluster's folder and socket once nothing of it is left.
func (s *State) Forget() error {
	dir, err := StateDir(s.Name)
	if err != nil {
		return err
	}
	if s.Socket != "" {
		if err := os.RemoveAll(filepath.Dir(s.Socket)); err != nil {
			return fmt.Errorf("remove sockets of %s: %w", s.Name, err)
		}
		_ = os.Remove(filepath.Dir(filepath.Dir(s.Socket))) // goes only with the last cluster's; who needs it makes it anew
	}
	// Aside first: whoever takes the name meanwhile gets a folder of its own.
	aside := filepath.Join(filepath.Dir(dir), ".gone-"+rand.Text())
	switch err := os.Rename(dir, aside); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove state of %s: %w", s.Name, err)
	}
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove state of %s: %w", s.Name, err)
	}
	return nil
}
