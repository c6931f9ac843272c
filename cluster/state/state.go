// Package state is what outlives a driver on its host: the file by which it is found and
// taken over, the lock of a cluster's one driver, the history of clusters that are over,
// and the folders where state and sockets lie.
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
	"github.com/tfcluster/tfcluster/cluster/atomicfile"
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

// Hosted is whether the engine was asked to run the cluster's driver, and has been.
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
		return fmt.Errorf("encode state: %w", err)
	}
	return atomicfile.Write(filepath.Join(dir, "state.json"), b)
}

// Load reads a cluster's state; os.ErrNotExist when there is no such cluster.
func Load(name string) (*State, error) {
	dir, err := Dir(name)
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

// List lists every cluster of this user on this host, oldest first. Folders
// without a readable state are left out.
func List() ([]*State, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(home)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list clusters: %w", err)
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

// Forget removes a cluster's folder and socket once nothing of it is left.
func (s *State) Forget() error {
	dir, err := Dir(s.Name)
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

// DriverInput is what a driver reads on its standard input.
type DriverInput struct {
	Request json.RawMessage `json:"request"` // ReserveRequest as protojson
	State   *State          `json:"state,omitempty"`
	// CertPEM and KeyPEM are the authority's where another process made it: see Host.
	CertPEM string `json:"cert_pem,omitempty"`
	KeyPEM  string `json:"key_pem,omitempty"`
	// Environment is the packed one of --venv, as protojson, which the engine's store has.
	Environment json.RawMessage `json:"environment,omitempty"`
}
