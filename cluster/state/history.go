package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/atomicfile"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// ClusterRecord is what is known of a cluster when nothing of it is left: where its runs lie, and
// what it was at its engine. It holds no secret.
type ClusterRecord struct {
	ID           string                `json:"id,omitempty"` // the cluster's identity; "" in one that an earlier version wrote
	Name         string                `json:"name"`
	Backend      string                `json:"backend"`
	Owner        string                `json:"owner"`
	Dir          string                `json:"dir"`
	Since        time.Time             `json:"since"`
	Until        time.Time             `json:"until"`         // of its release; zero while it lives, or where its driver died
	Why          string                `json:"why,omitempty"` // of its release; "" where a person asked for it
	Engine       map[string]string     `json:"engine"`        // which engine, of the request's words on it
	Applications []cluster.Application `json:"leases,omitempty"`
	Places       json.RawMessage       `json:"places,omitempty"` // what the backend must know to read what the engine keeps
	LastRun      int32                 `json:"last_run"`
	Earlier      int32                 `json:"earlier,omitempty"` // the last run that its directory held before
	Lives        bool                  `json:"-"`                 // its driver's process is there, and it is not over as far as known
}

// mostPasts is how many are kept: the newest.
const mostPasts = 200

// pastsDir is below the state home, beside the clusters' own folders.
func pastsDir() (string, error) {
	home, err := Home()
	return filepath.Join(home, ".past"), err
}

// file is a name of the cluster's own: another may be called so later.
func (p *ClusterRecord) file() string {
	return fmt.Sprintf("%s-%s.json", p.Since.UTC().Format("20060102T150405.000000000"), p.Name)
}

// Ran returns whether this cluster did a run that is in its directory. A run without an
// identity was recorded by an earlier version, or not at all: its number and the time of
// its start then decide.
func (p *ClusterRecord) Ran(st *clusterpb.RunStatus) bool {
	if st.GetClusterId() != "" {
		return p.ID == "" || st.GetClusterId() == p.ID
	}
	if p.ID == "" {
		return true
	}
	return st.GetId() > p.Earlier && (st.GetStartedUnix() == 0 || st.GetStartedUnix() >= p.Since.Unix())
}

// Save writes it, over an earlier one of the same cluster.
func (p *ClusterRecord) Save() error {
	dir, err := pastsDir()
	if err != nil {
		return err
	}
	if err := cluster.CheckName(p.Name); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder for what is known of clusters: %w", err)
	}
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what is known of cluster %s: %w", p.Name, err)
	}
	fresh := false
	if _, err := os.Stat(filepath.Join(dir, p.file())); errors.Is(err, os.ErrNotExist) {
		fresh = true
	}
	if err := atomicfile.Write(filepath.Join(dir, p.file()), b); err != nil {
		return err
	}
	if fresh {
		forgetPasts(dir)
	}
	return nil
}

// forgetPasts removes the oldest. What cannot be removed is left for the next.
func forgetPasts(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return
	}
	slices.Sort(files) // by their time
	for _, f := range files[:max(0, len(files)-mostPasts)] {
		_ = os.Remove(f)
	}
}

// History are the clusters of this user on this host of which there was anything to know,
// oldest first: those that are over, whose driver died, or that live. What cannot be read
// is left out.
func History() ([]*ClusterRecord, error) {
	dir, err := pastsDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	states, err := List()
	if err != nil {
		return nil, err
	}
	lives := map[string]bool{}
	for _, s := range states {
		if s.Driver.Alive() {
			lives[(&ClusterRecord{Name: s.Name, Since: s.Since}).file()] = true
		}
	}
	slices.Sort(files)
	var pasts []*ClusterRecord
	for _, f := range files {
		p := &ClusterRecord{}
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, p)
		}
		if err == nil {
			p.Lives = p.Until.IsZero() && lives[filepath.Base(f)]
			pasts = append(pasts, p)
		}
	}
	return pasts, nil
}

// FindByApplication is the live cluster that an engine knows by a name; "" if there is none.
func FindByApplication(lease string) string {
	states, err := List()
	if err != nil {
		return ""
	}
	for _, s := range states {
		if s.Allocation == lease && s.Driver.Alive() {
			return s.Name
		}
	}
	return ""
}
