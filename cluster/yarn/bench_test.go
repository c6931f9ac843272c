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

// samples are read by e2e/bench.
type samples struct {
	First []float64 `json:"first"` // Since while Hadoop was cold, without its first submission
	Began []float64 `json:"began"` // seconds from the driver's start until three processes run
	Since []float64 `json:"since"` // seconds from the application's start time in YARN
	PSS   float64   `json:"pss"`   // sum of driver and agents, in MB
}

// warmUps is the number of unmeasured rounds: Hadoop's daemons compile their code in them, as those of a
// cluster in use have done.
const (
	warmUps = 20
	first   = 5 // of the warm-up rounds, which are reported
)

// BenchmarkSubmit measures the time from a driver's start to three plain processes in containers, on a YARN
// whose nodes send a heartbeat every 100 ms. It alternates between the ApplicationMaster in the driver's
// process, where a client reserves and starts, and in a container, where the run is part of the submission,
// as with run --managed --detach. It prints its samples for e2e/bench.
func BenchmarkSubmit(b *testing.B) {
	clustertest.FindPython(b)
	y := hadooptest.Start(b, hadooptest.Options{
		HDFS: true, NodeManagers: 2, MasterExpiry: time.Minute,
		Site: map[string]string{"yarn.scheduler.capacity.node-locality-delay": "-1"}, // as in the measurement of TonY
	})
	ways := map[string]func(*samples){
		"unmanaged": func(s *samples) { s.measure(b, y, harness(b, y), reserveAndStart) },
		"managed":   func(s *samples) { s.measure(b, y, managed(b, y), submitRun) },
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

// measure runs one cluster of three workers, records its times, and shuts it down.
func (s *samples) measure(b *testing.B, y *hadooptest.Cluster, h clustertest.Harness,
	run func(*testing.B, clustertest.Harness, *clusterpb.Program) *clustertest.Cluster,
) {
	marks := b.TempDir()
	began := time.Now()
	c := run(b, h, &clusterpb.Program{
		Kind: clusterpb.Program_COMMAND, Name: "sleep", Words: []string{"sh", "-c", `: > "$0/$$"; exec sleep 600`, marks},
	})
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

// plainProcesses requests a small container for one plain process per worker.
func plainProcesses(r *clusterpb.ReserveRequest) {
	r.Framework = cluster.Plain
	for _, role := range r.Roles {
		role.Each = &clusterpb.Resources{MemoryBytes: 256 << 20}
	}
}

func reserveAndStart(b *testing.B, h clustertest.Harness, program *clusterpb.Program) *clustertest.Cluster {
	c := h.Start(b, "worker=3", plainProcesses)
	c.Script("", func(r *clusterpb.StartRequest) { r.Program = program })
	return c
}

func submitRun(b *testing.B, h clustertest.Harness, program *clusterpb.Program) *clustertest.Cluster {
	return h.Launch(b, "worker=3", plainProcesses, func(r *clusterpb.ReserveRequest) {
		r.OneRun, r.Begin = true, &clusterpb.StartRequest{Program: program, Options: &clusterpb.RunOptions{Mode: "train"}}
	})
}

var pssLine = regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`)

// pss returns the proportional set size of a cluster's driver and all agents, in MB.
func pss(b *testing.B, y *hadooptest.Cluster, name string) float64 {
	s, err := state.Load(name)
	if err != nil {
		b.Fatal(err)
	}
	pids := []int{int(s.Driver.PID)}
	for pid, command := range y.Containers("") {
		if strings.HasPrefix(command, "./tfcluster") { // an agent, or the ApplicationMaster
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
