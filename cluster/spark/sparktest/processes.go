package sparktest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Executor is the JVM of an executor.
type Executor struct {
	// App and ID are Spark's IDs: app-20260102030405-0000, and a number from 0 on that is unique within an
	// application.
	App, ID string
	// Worker is the index of its worker, as in KillWorker; -1 if the worker has ended.
	Worker int
	// PID is the JVM's process ID; Python workers are its descendants.
	PID int
}

// Executors returns the running executors of an application in the order of their numbers.
func (c *Cluster) Executors(app string) []Executor {
	var found []Executor
	for _, p := range c.processes() {
		e := Executor{App: p.option("--app-id"), ID: p.option("--executor-id"), Worker: -1, PID: p.PID}
		if e.App != app || !slices.Contains(p.args, "org.apache.spark.executor.CoarseGrainedExecutorBackend") {
			continue
		}
		c.mu.Lock()
		e.Worker = max(-1, slices.IndexFunc(c.daemons, func(d *daemon) bool { return d.pid == p.parent })-1)
		c.mu.Unlock()
		found = append(found, e)
	}
	slices.SortFunc(found, func(a, b Executor) int { return number(a.ID) - number(b.ID) })
	return found
}

func number(id string) int {
	n, err := strconv.Atoi(id)
	if err != nil {
		return -1
	}
	return n
}

type process struct {
	state.Process
	parent int
	args   []string
}

// option returns the argument after a process's option, or "".
func (p process) option(name string) string {
	if i := slices.Index(p.args, name); i >= 0 && i+1 < len(p.args) {
		return p.args[i+1]
	}
	return ""
}

// processes returns the processes with the cluster's marker: its daemons and all processes that they have
// started, in any session or process group.
func (c *Cluster) processes() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	var found []process
	for _, dir := range dirs {
		if !slices.Contains(strings.Split(read(filepath.Join(dir, "environ")), "\x00"), c.marker) {
			continue
		}
		p := process{args: strings.Split(strings.TrimSuffix(read(filepath.Join(dir, "cmdline")), "\x00"), "\x00")}
		stat := read(filepath.Join(dir, "stat"))
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || len(fields) < 2 {
			continue // it has ended meanwhile
		}
		p.Process, p.parent = state.ProcessOf(pid), number(fields[1])
		if p.Alive() {
			found = append(found, p)
		}
	}
	return found
}

// startedProcesses returns the processes that are not daemons.
func (c *Cluster) startedProcesses() []process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.processes(), func(p process) bool {
		return slices.ContainsFunc(c.daemons, func(d *daemon) bool { return d.pid == p.PID })
	})
}

// Logs returns the last lines of the daemons' and the executors' logs.
func (c *Cluster) Logs() string {
	files, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))            // the patterns
	more, _ := filepath.Glob(filepath.Join(c.Work(), "*", "*", "std*")) // are well formed
	var b strings.Builder
	for _, file := range append(files, more...) {
		fmt.Fprintf(&b, "== %s\n%s\n", strings.TrimPrefix(file, c.dir+string(os.PathSeparator)), tail(read(file)))
	}
	return b.String()
}

// stop stops the cluster. The test fails if applications or processes are left.
func (c *Cluster) stop() {
	if c.UI != "" {
		var s State
		clustertest.WaitFor(c.t, "the end of the applications", func() bool {
			var err error
			s, err = c.State()
			return err != nil || len(s.Active) == 0
		})
		for _, a := range s.Active {
			c.t.Errorf("application %s (%s) is left", a.ID, a.Name)
		}
	}
	// One look without any process is enough: workers start processes later that remove the folders of
	// applications.
	var left []process
	clustertest.WaitFor(c.t, "the end of the processes on the workers", func() bool {
		left = c.startedProcesses()
		return len(left) == 0
	})
	for _, p := range left {
		c.t.Errorf("process %d is left: %.400q", p.PID, p.args)
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended
	}
	if c.t.Failed() {
		c.t.Log(c.Logs())
	}
	for _, d := range c.daemons {
		d.kill()
	}
}
