package spark

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster/state"
)

// How long is waited.
const (
	notebookCalls = 20 * time.Second // until the notebook's session calls
	returnTimeout = 10 * time.Second // until a host calls the driver that took over
	stopTimeout   = 2 * time.Second  // until a host has heard that the cluster is over
	startTimeout  = time.Minute      // until agents are started in slots that are free
)

// session is the process that holds a session of our own. It outlives the driver, so
// that another finds the executors.
type session struct {
	process state.Process
	key     string        // told apart by it from another that a driver made
	how     string        // it ended; set before ended is closed, "" where another driver started it
	ended   chan struct{} // closed when it is gone
}

// current is the session as it is now.
type current struct {
	host    *host  // nil while none is connected
	over    string // why the notebook's session is; "" while it is not known to be
	hello   hostEvent
	session *session      // of our own; nil on the notebook's
	changed chan struct{} // closed when host changes
}

// startSession runs the host with a session of its own. Settings, which may hold
// secrets, go by standard input.
func (a *allocation) startSession() (*session, error) {
	path, err := a.backend.PythonPath(a.req.StateDir)
	if err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(a.req.Reserve.GetAdvertise(), ":")
	key := rand.Text()
	asked, err := json.Marshal(map[string]any{"conf": settings(a.req, host), "socket": a.socket, "key": key, "folder": a.req.StateDir, "patience": a.patience().Seconds()})
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(a.logPath(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the Spark session's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(a.req.Reserve.GetPython(), "-P", "-m", "tfcluster.spark_host") // -P: no module of the notebook's folder hides one of the standard library
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(asked), log, log
	cmd.Env = append(os.Environ(), "PYTHONPATH="+joinPath(path, os.Getenv("PYTHONPATH")))
	if python := cmp.Or(a.req.Reserve.GetEngine()[engineConf+"spark.pyspark.python"], a.req.Reserve.GetPython()); os.Getenv("PYSPARK_PYTHON") == "" {
		cmd.Env = append(cmd.Env, "PYSPARK_PYTHON="+python) // PySpark reads this alone for the Python of its jobs
	}
	cmd.Dir = "/"
	if wd := a.req.Reserve.GetWorkingDir(); wd != "" {
		cmd.Dir = wd
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a Spark session with %s: %w", a.req.Reserve.GetPython(), err)
	}
	s := &session{process: state.ProcessOf(cmd.Process.Pid), key: key, ended: make(chan struct{})}
	go func() { // until the process ends, which may be after the driver
		_ = cmd.Wait() // what it said is in its log
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			s.how = fmt.Sprintf("its process was killed by signal %d", ws.Signal())
		}
		close(s.ended)
	}()
	return s, nil
}

// watchSession takes up the process that another driver started.
func (a *allocation) watchSession(p state.Process, key string) *session {
	s := &session{process: p, key: key, ended: make(chan struct{})}
	a.work.Go(func() {
		defer close(s.ended)
		for p.Alive() {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-a.stop:
				return
			}
		}
	})
	return s
}

func joinPath(first, rest string) string {
	if rest == "" {
		return first
	}
	return first + string(os.PathListSeparator) + rest
}

func (a *allocation) logPath() string { return filepath.Join(a.req.StateDir, "spark.log") }

// open makes or awaits the session and waits for its first word.
func (a *allocation) open(ctx context.Context) error {
	if borrowed(a.req.Reserve) {
		limited, cancel := context.WithTimeout(ctx, notebookCalls)
		defer cancel()
		if err := a.await(limited, nil); err != nil {
			return fmt.Errorf("the notebook's Spark session did not call: %w", err)
		}
		return a.suits()
	}
	s, err := a.anotherSession()
	if err != nil {
		return err
	}
	if err := a.await(ctx, s.ended); err != nil {
		a.kill(s)
		return fmt.Errorf("the Spark session was not made: %w", err)
	}
	return a.suits()
}

// anotherSession starts a session in the place of the last one, which may live: its
// connection broke.
func (a *allocation) anotherSession() (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kill(a.session)
	s, err := a.startSession()
	if err == nil {
		a.session = s
	}
	return s, err
}

// reopen awaits the host that a dead driver left; kept is false where a new session
// had to be made.
func (a *allocation) reopen(ctx context.Context) (kept bool, err error) {
	old := a.old.Session
	if !borrowed(a.req.Reserve) && !old.Alive() {
		return false, a.open(ctx)
	}
	s := a.watchSession(old, a.old.Key)
	if borrowed(a.req.Reserve) {
		s = nil
	}
	a.mu.Lock()
	a.session = s
	a.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	var ended <-chan struct{}
	if s != nil {
		ended = s.ended
	}
	switch err := a.await(limited, ended); {
	case err == nil:
		return true, nil
	case borrowed(a.req.Reserve):
		return false, errors.New("the notebook's SparkSession that this cluster was on is over: shutdown removes the cluster, reserve makes another")
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	a.kill(s)
	return false, a.open(ctx)
}

// await waits for a host's first word.
func (a *allocation) await(ctx context.Context, ended <-chan struct{}) error {
	look := time.NewTicker(progressEvery)
	defer look.Stop()
	said := ""
	for {
		a.mu.Lock()
		here, over, changed := a.host != nil, a.over, a.changed
		a.mu.Unlock()
		switch {
		case over != "":
			return errors.New(over)
		case here:
			return nil
		}
		select {
		case <-changed:
		case <-look.C:
			if ended != nil { // a session of our own
				said = a.showProgress(said)
			}
		case <-ended:
			return errors.New(a.lastWords())
		case <-ctx.Done():
			if last := a.lastWords(); last != noWords {
				return fmt.Errorf("%w; its last words: %s", ctx.Err(), last)
			}
			return ctx.Err()
		}
	}
}

// suits refuses a session on which agents cannot be held.
func (a *allocation) suits() error {
	a.mu.Lock()
	hello := a.hello
	a.mu.Unlock()
	gpus := sizeOf(a.req.Executors).gpus
	switch {
	case hello.Dynamic:
		return errors.New("this session allocates executors dynamically, so Spark removes those without jobs: set spark.dynamicAllocation.enabled=false explicitly where the session is made")
	case gpus > 0 && hello.GPUs == "" && !hello.Connect && !strings.HasPrefix(hello.Master, "local"):
		return fmt.Errorf("%d GPUs asked for, this session gives its tasks none: set spark.executor.resource.gpu.amount and spark.task.resource.gpu.amount=%d where the session is made", gpus, gpus)
	}
	return nil
}

// maxLog is how much of the end of a session's log is looked through, in bytes: it
// grows as long as the session lives.
const maxLog = 1 << 20

// noWords stands for a log in which nothing is.
const noWords = "no word"

// gone says why a session of our own is over.
func (a *allocation) gone() string {
	a.mu.Lock()
	s := a.session
	a.mu.Unlock()
	if s != nil {
		select {
		case <-s.ended:
			if s.how != "" {
				return s.how
			}
		case <-time.After(stopTimeout): // its connection broke, and it lives
		case <-a.stop:
		}
	}
	return a.lastWords()
}

// lastWords is the line of the session's log that tells the cause.
func (a *allocation) lastWords() string { return cause(a.logTail()) }

// cause finds in a log the line that says why: Python's exception or Java's, else
// the last one.
func cause(text string) string {
	last := noWords
	found := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "at ") {
			continue
		}
		last = line
		for _, mark := range []string{"ModuleNotFoundError: ", "Exception in thread \"main\" ", "Caused by: ", "ERROR SparkContext: ", "Exception: "} {
			if _, after, ok := strings.Cut(line, mark); ok && after != "" {
				found = strings.TrimSuffix(after, ".")
			}
		}
	}
	if strings.Contains(text, "No module named 'pyspark'") {
		return "the interpreter has no pyspark: pip install pyspark of the cluster's version, or --python another one"
	}
	if strings.Contains(text, "JAVA_HOME is not set") || strings.Contains(text, "java: not found") || strings.Contains(text, "java: command not found") {
		return "there is no Java for Spark here: install a JRE (17 for Spark 4), or set JAVA_HOME"
	}
	switch first, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); {
	case found != "":
		return found
	case strings.Contains(last, "JAVA_GATEWAY_EXITED"): // Python knows no more; Java said it before
		return "its Java ended: " + first
	}
	return last
}

// kill ends the process of a session: its JVM ends when its pipe closes.
func (a *allocation) kill(s *session) {
	if s != nil && s.process.Alive() {
		_ = syscall.Kill(s.process.PID, syscall.SIGKILL) // gone meanwhile is as well
	}
}
