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
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// samples are what e2e/bench reads.
type samples struct {
	First []float64 `json:"first"` // Since of Hadoop's first minute, without its first submission
	Began []float64 `json:"began"` // seconds from the driver's start to three processes that run
	Since []float64 `json:"since"` // the same from the moment at which YARN has the application
	PSS   float64   `json:"pss"`   // of driver and agents together, in MB
}

// warmUps are the rounds of each way before those that count: Hadoop's daemons compile in
// them what they run, which those of a cluster of people's have done long ago.
const (
	warmUps = 20
	first   = 5 // of them are told too
)

// BenchmarkSubmit is from a driver's start to three plain processes in containers, on a
// YARN whose nodes beat every 100 ms: turn about with the ApplicationMaster in the driver,
// for which a client reserves and starts, and in a container, to which the run was given
// with the submission, as run --managed --detach does. It prints its samples for e2e/bench.
func BenchmarkSubmit(b *testing.B) {
	clustertest.FindPython(b)
	y := hadooptest.Start(b, hadooptest.Options{
		HDFS: true, NodeManagers: 2, MasterExpiry: time.Minute,
		Site: map[string]string{"yarn.scheduler.capacity.node-locality-delay": "-1"}, // as TonY was measured
	})
	ways := map[string]func(*samples){
		"unmanaged": func(s *samples) { s.take(b, y, harness(b, y), reserveAndStart) },
		"managed":   func(s *samples) { s.take(b, y, managed(b, y), submitRun) },
	}
	warming := map[string]*samples{"unmanaged": {}, "managed": {}}
	for range warmUps {
		for way, take := range ways {
			take(warming[way])
		}
	}
	found := map[string]*samples{}
	for way, w := range warming {
		found[way] = &samples{First: w.Since[1 : first+1]}
	}
	for b.Loop() {
		for way, take := range ways {
			take(found[way])
		}
	}
	raw, err := json.Marshal(found)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("samples %s\n", raw)
}

// take measures one cluster of three workers, and ends it.
func (s *samples) take(b *testing.B, y *hadooptest.Cluster, h clustertest.Harness, run func(*testing.B, clustertest.Harness, *clusterpb.Program) *clustertest.Cluster) {
	marks := b.TempDir()
	began := time.Now()
	c := run(b, h, &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Name: "sleep", Words: []string{"sh", "-c", `: > "$0/$$"; exec sleep 600`, marks}})
	var last time.Time
	clustertest.WaitFor(b, "three processes", func() bool {
		files, err := os.ReadDir(marks)
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				b.Fatal(err)
			}
			if info.ModTime().After(last) {
				last = info.ModTime()
			}
		}
		return len(files) == 3
	})
	s.Began = append(s.Began, last.Sub(began).Seconds())
	s.Since = append(s.Since, last.Sub(time.UnixMilli(report(b, y, c).GetStartTime())).Seconds())
	if s.PSS == 0 {
		s.PSS = pss(b, y, c.Name)
	}
	c.End()
}

// plainly has each worker be a small container for a process.
func plainly(r *clusterpb.ReserveRequest) {
	r.Framework = cluster.Plain
	for _, role := range r.Roles {
		role.Each = &clusterpb.Resources{MemoryBytes: 256 << 20}
	}
}

func reserveAndStart(b *testing.B, h clustertest.Harness, program *clusterpb.Program) *clustertest.Cluster {
	c := h.Start(b, "worker=3", plainly)
	c.Script("", func(r *clusterpb.StartRequest) { r.Program = program })
	return c
}

func submitRun(b *testing.B, h clustertest.Harness, program *clusterpb.Program) *clustertest.Cluster {
	return h.Launch(b, "worker=3", plainly, func(r *clusterpb.ReserveRequest) {
		r.OneRun, r.Begin = true, &clusterpb.StartRequest{Program: program, Options: &clusterpb.RunOptions{Mode: "train"}}
	})
}

var pssLine = regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`)

// pss is the memory of a cluster's driver and of all agents, in MB, with a share of each
// page that several have.
func pss(b *testing.B, y *hadooptest.Cluster, name string) float64 {
	s, err := state.Load(name)
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
