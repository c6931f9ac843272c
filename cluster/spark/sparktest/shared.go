package sparktest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tfcluster/tfcluster/internal/atomicfile"
)

// SharedVar is the environment variable that names the file in which Save has described a running cluster.
const SharedVar = "TFCLUSTER_TEST_SPARK"

// description is what other processes must know of a running cluster.
type description struct {
	URL, UI, Dir, Marker string
	Daemons              []int // process IDs: the master, then the workers
}

// Shared returns the cluster that the tests of all packages share: the one that $TFCLUSTER_TEST_SPARK describes, or
// a new one that ends with t. It has two workers with more room than the tests ask for. Tests must neither stop its
// daemons nor rely on being alone. defaults are settings of sessions that use its Environment.
func Shared(t testing.TB, defaults map[string]string) *Cluster {
	t.Helper()
	path := os.Getenv(SharedVar)
	if path == "" {
		return Start(t, Options{Cores: 128, MemoryMiB: 128 << 10, Defaults: defaults})
	}
	c := newCluster(t, Options{Defaults: defaults})
	var d description
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatalf("read where Spark is: %v", err)
	}
	c.URL, c.UI, c.dir, c.marker = d.URL, d.UI, d.Dir, d.Marker
	for _, pid := range d.Daemons {
		c.daemons = append(c.daemons, &daemon{pid: pid})
	}
	c.conf = filepath.Join(t.TempDir(), "conf")
	if err := c.configure(); err != nil {
		t.Fatalf("set up Spark's sessions: %v", err)
	}
	return c
}

// Save describes the cluster in a file, for Shared in other processes.
func (c *Cluster) Save(path string) error {
	d := description{URL: c.URL, UI: c.UI, Dir: c.dir, Marker: c.marker}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, daemon := range c.daemons {
		d.Daemons = append(d.Daemons, daemon.pid)
	}
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, b)
}
