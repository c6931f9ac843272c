// Package state stores what outlives a driver on its host: the file with which it is found and
// taken over, the lock that a cluster's only driver holds, the history of clusters, and the
// folders of state and sockets.
package state

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/atomicfile"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// State is the state of a cluster that outlives its driver: enough to find the driver, and for
// another one to take over. Its file has mode 0600, because it contains the authority's key.
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
	Address    string          `json:"address"` // for agents
	CertPEM    string          `json:"cert_pem"`
	KeyPEM     string          `json:"key_pem"`
	LastRun    int32           `json:"last_run"`
	Earlier    int32           `json:"earlier,omitempty"` // last run in its directory before its first driver
	Detached   bool            `json:"detached"`
	Version    string          `json:"version"`
}

// Hosted reports whether the engine runs the cluster's driver.
func (s *State) Hosted() bool {
	r, err := s.ReserveRequest()
	return err == nil && r.GetEngine()[cluster.EngineManaged] != "" && s.Allocation != ""
}

// Save writes the state into the cluster's folder.
func (s *State) Save() error {
	dir, err := Dir(s.Name)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return errtext.Fault("encode the state of cluster %s: %w", s.Name, err)
	}
	return atomicfile.Write(filepath.Join(dir, "state.json"), b)
}

// Load reads the state of a cluster; the error wraps os.ErrNotExist if there is no such
// cluster.
func Load(name string) (*State, error) {
	dir, err := Dir(name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return nil, fmt.Errorf("read the state of cluster %s: %w", name, err)
	}
	s := &State{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("the state of cluster %s in %s cannot be read: %w; end what is left of the cluster (yarn "+
			"application -kill, Spark's web page, or kill its tfcluster processes), then remove that folder", name, dir, err)
	}
	return s, nil
}

// ReserveRequest returns the original request.
func (s *State) ReserveRequest() (*clusterpb.ReserveRequest, error) {
	r := &clusterpb.ReserveRequest{}
	if err := protojson.Unmarshal(s.Request, r); err != nil {
		return nil, fmt.Errorf("the saved request of cluster %s cannot be read: %w; another version of tfcluster may have "+
			"written it: use that one, or reserve again", s.Name, err)
	}
	return r, nil
}

// List returns the state of every cluster of this user on this host, oldest first. It omits
// folders without a readable state.
func List() ([]*State, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(home)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf(
			"list this user's clusters: %w; give this user access to that folder, or set TFCLUSTER_HOME to another one", err)
	}
	var states []*State
	for _, e := range entries {
		if s, err := Load(e.Name()); err == nil {
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b *State) int { return a.Since.Compare(b.Since) })
	return states, nil
}

// Forget removes the folder and the sockets of a cluster that no longer exists.
func (s *State) Forget() error {
	dir, err := Dir(s.Name)
	if err != nil {
		return err
	}
	if s.Socket != "" {
		if err := os.RemoveAll(filepath.Dir(s.Socket)); err != nil {
			return fmt.Errorf("remove the sockets of cluster %s: %w", s.Name, err)
		}
		_ = os.Remove(filepath.Dir(filepath.Dir(s.Socket))) // succeeds only if it is empty; it is created again when needed
	}
	// Rename first: a cluster that takes the name meanwhile gets a new folder.
	renamed := filepath.Join(filepath.Dir(dir), ".gone-"+rand.Text())
	switch err := os.Rename(dir, renamed); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove state of %s: %w", s.Name, err)
	}
	if err := os.RemoveAll(renamed); err != nil {
		return fmt.Errorf("remove state of %s: %w", s.Name, err)
	}
	return nil
}

// DriverInput is the standard input of a driver.
type DriverInput struct {
	Request json.RawMessage `json:"request"` // ReserveRequest as protojson
	State   *State          `json:"state,omitempty"`
	// CertPEM and KeyPEM are the authority's, if another process created it.
	CertPEM string `json:"cert_pem,omitempty"`
	KeyPEM  string `json:"key_pem,omitempty"`
	// Environment is the packed environment of --venv, as protojson; the engine's storage
	// contains it.
	Environment json.RawMessage `json:"environment,omitempty"`
}
