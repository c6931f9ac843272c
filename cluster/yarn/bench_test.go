package yarn_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// samples are what e2e/bench reads.
type samples struct {
	Reserved []float64 `json:"reserved"` // seconds from the driver's start to three agents that wait
	Entered  []float64 `json:"entered"`  // and to three processes that run
	Since    []float64 `json:"since"`    // the same from the moment at which YARN has the application
	PSS      float64   `json:"pss"`      // of driver and agents together, in MB
}

// BenchmarkSubmit is from a driver's start to three plain processes in containers, on a
// YARN whose nodes beat every 100 ms: turn about with the ApplicationMaster in the driver
// and in a container. It prints its samples for e2e/bench.
func BenchmarkSubmit(b *testing.B) {
	clustertest.FindPython(b)
	y := hadooptest.Start(b, hadooptest.Options{
		HDFS: true, NodeManagers: 2, MasterExpiry: time.Minute,
		Site: map[string]string{"yarn.scheduler.capacity.node-locality-delay": "-1"}, // as TonY was measured
	})
	b.Setenv("HADOOP_CONF_DIR", y.Conf)
	ways := map[string]clustertest.Harness{"unmanaged": harness(b), "managed": managed(b)}
	found := map[string]*samples{"unmanaged": {}, "managed": {}}
	for b.Loop() {
		for way, h := range ways {
			found[way].take(b, y, h)
		}
	}
	raw, err := json.Marshal(found)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("samples %s\n", raw)
}

// take measures one cluster, and ends it.
func (s *samples) take(b *testing.B, y *hadooptest.Cluster, h clustertest.Harness) {
	began := time.Now()
	c := h.Start(b, "worker=3", func(r *clusterpb.ReserveRequest) {
		r.Framework = cluster.Plain
		for _, role := range r.Roles {
			role.Each = &clusterpb.Resources{MemoryBytes: 256 << 20}
		}
	})
	s.Reserved = append(s.Reserved, time.Since(began).Seconds())
	c.Script("", func(r *clusterpb.StartRequest) {
		r.Program = &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Name: "sleep", Words: []string{"sleep", "600"}}
	})
	now := time.Now()
	s.Entered = append(s.Entered, now.Sub(began).Seconds())
	s.Since = append(s.Since, now.Sub(time.UnixMilli(report(b, y, c).GetStartTime())).Seconds())
	if s.PSS == 0 {
		s.PSS = pss(b, y, c.Name)
	}
	c.End()
}

var pssLine = regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`)

// pss is the memory of a cluster's driver and of all agents, in MB, with a share of each
// page that several have.
func pss(b *testing.B, y *hadooptest.Cluster, name string) float64 {
	s, err := cluster.LoadState(name)
	if err != nil {
		b.Fatal(err)
	}
	pids := []int{int(s.Driver.PID)}
	for pid, words := range y.Containers() {
		if strings.HasPrefix(words, "./tfcluster") { // an agent, or the ApplicationMaster
			pids = append(pids, pid)
		}
	}
	sum := 0.0
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			b.Fatal(err)
		}
		if m := pssLine.FindSubmatch(raw); m != nil {
			kB, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += kB / 1000
		}
	}
	return sum
}
