package hosts

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/clustertest/hosts"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// The hosts of a site.
const (
	notebook = "a"
	master   = "b"
)

var workers = []string{"c", "d"}

// site is a notebook's host beside an engine on other hosts.
type site struct {
	*hosts.Hosts
	t       testing.TB
	program string
	python  string
	env     []string // of the notebook's host
	options []string // of run
	fixed   []string // more options of run: the engine's daemons on the notebook's host listen on ports
	ports   string
	results string // the --dir of runs whose files are looked at
	cells   cells
}

// cells are what a notebook on the site executes.
type cells struct {
	session string   // makes what is reserved on
	options []string // of reserve
	data    string   // an expression of DATA: n records with a column x, 0 to n-1
}

// newSite starts the hosts. They see the program and its Python, and more folders.
func newSite(t testing.TB, more ...string) *site {
	t.Helper()
	s := &site{t: t, program: clustertest.Program(t), python: clustertest.FindPython(t)}
	environment := filepath.Dir(filepath.Dir(s.python))
	shares := append([]string{filepath.Dir(s.program), environment}, more...)
	s.Hosts = hosts.New(t, shares, append([]string{notebook, master}, workers...)...)
	s.env = []string{"PATH=" + filepath.Join(environment, "bin") + ":/usr/local/bin:/usr/bin:/bin"}
	return s
}

// daemon starts a daemon on a host, which ends with it, and waits until its log has a line with this text.
func (s *site) daemon(host, ready string, env []string, words ...string) *output {
	s.t.Helper()
	log := &output{}
	cmd := s.Command(context.WithoutCancel(s.t.Context()), host, env, words...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s.t.Cleanup(func() { <-ended })
	s.t.Cleanup(func() { _ = cmd.Cancel() })
	if !log.await(ready, clustertest.Deadline) {
		s.t.Fatalf("%s on %s has no line %q:\n%s", words[len(words)-1], host, ready, log)
	}
	return log
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// await waits until the output has a text, and reports whether it has.
func (o *output) await(text string, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(o.String(), text) {
			return true
		}
	}
	return false
}

// down pulls the cable of a host until the test ends at the latest.
func (s *site) down(host string) {
	s.t.Helper()
	s.Down(host)
	s.t.Cleanup(func() { s.Up(host) })
}

// job is a command on the notebook's host.
type job struct {
	*output
	s     *site
	cmd   *exec.Cmd
	ended chan struct{} // closed with its end
	err   error         // how it ended
}

// run starts tfcluster run with a program.
func (s *site) run(program string, options ...string) *job {
	s.t.Helper()
	path := hosts.Home + "/program.py"
	if err := os.WriteFile(s.Path(notebook, path), []byte(program), 0o644); err != nil {
		s.t.Fatal(err)
	}
	words := append([]string{s.program, "run", "--workers", "2"}, append(s.options, options...)...)
	return s.start(nil, s.env, append(words, path)...)
}

// start starts a command on the notebook's host.
func (s *site) start(in io.Reader, env []string, words ...string) *job {
	s.t.Helper()
	j := &job{output: &output{}, s: s, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	j.cmd = s.Command(ctx, notebook, env, words...)
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = in, j, j
	if err := j.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { defer close(j.ended); j.err = j.cmd.Wait() }()
	s.t.Cleanup(func() { cancel(); <-j.ended })
	return j
}

// sees waits for a text of the output.
func (j *job) sees(text string) {
	j.s.t.Helper()
	limit := time.After(clustertest.Deadline)
	for !j.await(text, time.Second) {
		select {
		case <-j.ended:
			if strings.Contains(j.String(), text) {
				return
			}
			j.s.t.Fatalf("it has ended without a line %q:\n%s", text, j)
		case <-limit:
			j.s.t.Fatalf("no line %q:\n%s", text, j)
		default:
		}
	}
}

// ends waits for the end of the job, and returns its exit code.
func (j *job) ends() int {
	j.s.t.Helper()
	select {
	case <-j.ended:
		return j.cmd.ProcessState.ExitCode()
	case <-time.After(clustertest.Deadline):
		j.s.t.Fatalf("it does not end:\n%s", j)
		return 0
	}
}

// host returns the worker's host on which a task runs, by its first line "worker:N is on HOST".
func (j *job) host(task string) string {
	j.s.t.Helper()
	mark := task + " is on "
	j.sees(mark)
	_, after, _ := strings.Cut(j.String(), mark)
	name, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(name)
}

// checkLeft fails the test if a host has a process of a cluster.
func (s *site) checkLeft() {
	s.t.Helper()
	for _, name := range append([]string{notebook, master}, workers...) {
		left := func() string {
			out, _ := s.Run(name, "pgrep", "-af", "tfcluster (agent|driver|appmaster|zygote)|program.py") // without one it fails
			return out
		}
		for end := time.Now().Add(20 * time.Second); left() != "" &&
			time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		}
		if out := left(); out != "" {
			s.t.Errorf("left on %s:\n%s", name, out)
		}
	}
}
