package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/atomicfile"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// ClusterRecord describes a cluster that may no longer exist: its directory and its
// applications at the engine. It contains no secrets.
type ClusterRecord struct {
	// The cluster's identity; "" if an earlier version wrote the record.
	ID           string                `json:"id,omitempty"`
	Name         string                `json:"name"`
	Backend      string                `json:"backend"`
	Owner        string                `json:"owner"`
	Dir          string                `json:"dir"`
	Since        time.Time             `json:"since"`
	Until        time.Time             `json:"until"`         // time of its release; zero if it is live or its driver died
	Why          string                `json:"why,omitempty"` // reason of its release; "" if a person requested it
	Engine       map[string]string     `json:"engine"`        // engine options of the request
	Applications []cluster.Application `json:"leases,omitempty"`
	Places       json.RawMessage       `json:"places,omitempty"` // where the backend finds logs that the engine keeps
	LastRun      int32                 `json:"last_run"`
	Earlier      int32                 `json:"earlier,omitempty"` // last run in its directory before this cluster
	// Its driver's process exists, and its release is not recorded.
	Lives bool `json:"-"`
}

// maxRecords limits the number of records: the newest ones.
const maxRecords = 200

// historyDir returns the folder of the records, in the state home.
func historyDir() (string, error) {
	home, err := Home()
	return filepath.Join(home, ".past"), err
}

// file returns a file name that is unique even if a later cluster has the same name.
func (p *ClusterRecord) file() string {
	return fmt.Sprintf("%s-%s.json", p.Since.UTC().Format("20060102T150405.000000000"), p.Name)
}

// Ran reports whether this cluster started a run of its directory. If the run has no cluster
// identity, because an earlier version recorded it or it has no record, the number and the
// start time decide.
func (p *ClusterRecord) Ran(st *clusterpb.RunStatus) bool {
	if st.GetClusterId() != "" {
		return p.ID == "" || st.GetClusterId() == p.ID
	}
	if p.ID == "" {
		return true
	}
	return st.GetId() > p.Earlier && (st.GetStartedUnix() == 0 || st.GetStartedUnix() >= p.Since.Unix())
}

// HasApplication reports whether the cluster had an application at its engine.
func (p *ClusterRecord) HasApplication(id string) bool {
	return slices.ContainsFunc(p.Applications, func(a cluster.Application) bool { return a.ID == id })
}

// Save writes the record and replaces an earlier one of the same cluster.
func (p *ClusterRecord) Save() error {
	dir, err := historyDir()
	if err != nil {
		return err
	}
	if err := cluster.CheckName(p.Name); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder for the records of ended clusters: %w", err)
	}
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return errtext.Fault("encode the record of cluster %s: %w", p.Name, err)
	}
	_, known := os.Stat(filepath.Join(dir, p.file()))
	if err := atomicfile.Write(filepath.Join(dir, p.file()), b); err != nil {
		return err
	}
	if errors.Is(known, os.ErrNotExist) {
		pruneHistory(dir)
	}
	return nil
}

// pruneHistory removes the oldest records. The next call repeats failed removals.
func pruneHistory(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return
	}
	slices.Sort(files) // by time
	for _, f := range files[:max(0, len(files)-maxRecords)] {
		_ = os.Remove(f)
	}
}

// History returns the recorded clusters of this user on this host, oldest first: released ones,
// ones whose driver died, and live ones. It omits unreadable records.
func History() ([]*ClusterRecord, error) {
	dir, err := historyDir()
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
	var records []*ClusterRecord
	for _, f := range files {
		p := &ClusterRecord{}
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, p)
		}
		if err == nil {
			p.Lives = p.Until.IsZero() && lives[filepath.Base(f)]
			records = append(records, p)
		}
	}
	return records, nil
}

// DirsInUse returns a function that reports whether a cluster uses a directory: one with a state on this host, or
// a managed one that may run without its proxy.
func DirsInUse() (func(dir string) bool, error) {
	states, err := List()
	if err != nil {
		return nil, err
	}
	records, err := History()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, s := range states {
		used[canonical(s.Dir)] = true
	}
	for _, p := range records {
		if p.Lives || p.Until.IsZero() && p.Engine[cluster.EngineManaged] != "" {
			used[canonical(p.Dir)] = true
		}
	}
	return func(dir string) bool { return used[canonical(dir)] }, nil
}

// canonical returns a directory's path without symbolic links.
func canonical(dir string) string {
	if strings.Contains(dir, "://") {
		return strings.TrimRight(dir, "/")
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

// FindByApplication returns the name of the live cluster with an application at the engine; ""
// if there is none.
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
