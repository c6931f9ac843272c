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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster/state"
)

// Time limits.
const (
	notebookCalls = 20 * time.Second // until the notebook's session connects
	returnTimeout = 10 * time.Second // until a host connects to the driver that took over
	stopTimeout   = 2 * time.Second  // for a host to end
	startTimeout  = time.Minute      // to start agents in free slots
)

// session is a process with a SparkSession that a driver made. It outlives the driver, so that
// the next one finds the executors.
type session struct {
	process state.Process
	key     string        // distinguishes it from a session of another driver
	exit    string        // how it ended; set before ended is closed; "" if another driver started it
	ended   chan struct{} // closed when it has ended
}

// current is the state of the session.
type current struct {
	host     *host  // nil while not connected
	endedWhy string // why the notebook's session ended; "" while it lives
	hello    hostEvent
	session  *session      // made by a driver; nil for the notebook's
	changed  chan struct{} // closed when host changes
}

// startSession starts a host with a new session. Settings, which may contain secrets, are
// passed on standard input.
func (a *allocation) startSession() (*session, error) {
	path, err := a.backend.PythonPath(a.req.StateDir)
	if err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(a.req.Reserve.GetAdvertise(), ":")
	key := rand.Text()
	asked, err := json.Marshal(map[string]any{
		"conf": settings(a.req, host), "socket": a.socket, "key": key, "folder": a.req.StateDir,
		"patience": a.takeoverWait().Seconds(),
	})
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(a.logPath(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the Spark session's log: %w", err)
	}
	defer log.Close()
	// No module in the notebook's folder hides one of the standard library.
	cmd := exec.Command(a.req.Reserve.GetPython(), "-P", "-m", "tfcluster.spark_host")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(asked), log, log
	cmd.Env = append(os.Environ(), "PYTHONPATH="+joinPath(path, os.Getenv("PYTHONPATH")))
	if python := cmp.Or(a.req.Reserve.GetEngine()[engineConf+"spark.pyspark.python"],
		a.req.Reserve.GetPython()); os.Getenv("PYSPARK_PYTHON") == "" {
		cmd.Env = append(cmd.Env, "PYSPARK_PYTHON="+python) // the only variable that PySpark reads for the Python of its jobs
	}
	cmd.Dir = cmp.Or(a.req.Reserve.GetWorkingDir(), "/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a Spark session with %s: %w", a.req.Reserve.GetPython(), err)
	}
	s := &session{process: state.ProcessOf(cmd.Process.Pid), key: key, ended: make(chan struct{})}
	go func() { // ends with the process, maybe after the driver
		_ = cmd.Wait() // its output is in its log
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			s.exit = fmt.Sprintf("its process was killed by signal %d", ws.Signal())
		}
		close(s.ended)
	}()
	return s, nil
}

// watchSession watches the process that another driver started.
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

// open makes a session or waits for the notebook's, until its hello.
func (a *allocation) open(ctx context.Context) error {
	if onNotebookSession(a.req.Reserve) {
		limited, cancel := context.WithTimeout(ctx, notebookCalls)
		defer cancel()
		if err := a.awaitHost(limited, nil); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("it did not answer within %v; interrupt what the notebook's Python runs, "+
					"or make the session anew if it has ended, and reserve again", notebookCalls)
			}
			return fmt.Errorf("the notebook's Spark session did not connect: %w", err)
		}
		return a.checkSession()
	}
	s, err := a.replaceSession()
	if err != nil {
		return err
	}
	if err := a.awaitHost(ctx, s.ended); err != nil {
		a.kill(s)
		return fmt.Errorf("the Spark session was not made: %w", err)
	}
	return a.checkSession()
}

// replaceSession ends the last session, whose connection may have broken, and starts another.
func (a *allocation) replaceSession() (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kill(a.session)
	s, err := a.startSession()
	if err == nil {
		a.session = s
	}
	return s, err
}

// reconnect waits for the host of a dead driver; kept is false if a new session was made.
func (a *allocation) reconnect(ctx context.Context) (kept bool, err error) {
	old := a.old.Session
	if !onNotebookSession(a.req.Reserve) && !old.Alive() {
		return false, a.open(ctx)
	}
	s := a.watchSession(old, a.old.Key)
	if onNotebookSession(a.req.Reserve) {
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
	switch err := a.awaitHost(limited, ended); {
	case err == nil:
		return true, nil
	case onNotebookSession(a.req.Reserve):
		return false, errors.New("the notebook's SparkSession that it was on is over: make the session again")
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	a.kill(s)
	return false, a.open(ctx)
}

// awaitHost waits for a host's hello.
func (a *allocation) awaitHost(ctx context.Context, ended <-chan struct{}) error {
	look := time.NewTicker(progressEvery)
	defer look.Stop()
	said := ""
	for {
		a.mu.Lock()
		here, over, changed := a.host != nil, a.endedWhy, a.changed
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
			if ended != nil { // the driver makes the session
				said = a.showProgress(said)
			}
		case <-ended:
			return errors.New(a.logCause())
		case <-ctx.Done():
			return a.outOfTime(ctx)
		}
	}
}

// outOfTime returns that there is no session although the context is over, and the last line of the session's log.
func (a *allocation) outOfTime(ctx context.Context) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	evidence := ""
	if last := a.logCause(); last != emptyLog {
		evidence = fmt.Sprintf("; the last line of %s: %s", a.logPath(), last)
	}
	return fmt.Errorf("the Spark session was not ready in time%s; Spark may have no free resources: "+
		"see its master's page, or reserve --reserve-timeout 30m waits longer", evidence)
}

// checkSession refuses a session that cannot hold agents.
func (a *allocation) checkSession() error {
	a.mu.Lock()
	hello := a.hello
	a.mu.Unlock()
	gpus := sizeOf(a.req.Executors).gpus
	switch {
	case hello.Dynamic:
		return errors.New("this session allocates executors dynamically, so Spark removes those without jobs: " +
			"set spark.dynamicAllocation.enabled=false explicitly where the session is made")
	case gpus > 0 && hello.GPUs == "" && hello.ExecutorGPUs == "" && !hello.Connect &&
		!strings.HasPrefix(hello.Master, "local"):
		return fmt.Errorf("%d GPUs asked for, this session's executors have none: set spark.executor.resource.gpu.amount "+
			"where the session is made", gpus)
	}
	return nil
}

// holdsStage returns whether the stage that starts agents runs until they end, because Spark would assign their
// GPUs to other tasks. In a session that the driver makes the agents alone get GPUs, and if an executor has those of
// one agent, the next agent cannot get there: its stage ends, and the slot is free for tasks of a feed.
func (a *allocation) holdsStage() bool {
	gpus := sizeOf(a.req.Executors).gpus
	if gpus == 0 || onNotebookSession(a.req.Reserve) {
		return gpus > 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hello.ExecutorGPUs != strconv.Itoa(int(gpus))
}

// maxLog is how many bytes at the end of a session's log are searched; the log grows while the
// session lives.
const maxLog = 1 << 20

// emptyLog replaces the cause if the log is empty.
const emptyLog = "its log is empty"

// endReason returns why the driver's session has ended.
func (a *allocation) endReason() string {
	a.mu.Lock()
	s := a.session
	a.mu.Unlock()
	if s != nil {
		select {
		case <-s.ended:
			if s.exit != "" {
				return s.exit
			}
		case <-time.After(stopTimeout): // its process lives although the connection broke
		case <-a.stop:
		}
	}
	return a.logCause()
}

// logCause returns the line of the session's log with the cause.
func (a *allocation) logCause() string { return cause(a.logTail()) }

// cause returns the line of a log with the cause: the exception of Python or Java, otherwise
// the last line.
func cause(text string) string {
	last := emptyLog
	found := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "at ") {
			continue
		}
		last = line
		for _, mark := range []string{
			"ModuleNotFoundError: ", "Exception in thread \"main\" ", "Caused by: ", "ERROR SparkContext: ", "Exception: ",
		} {
			if _, after, ok := strings.Cut(line, mark); ok && after != "" {
				found = strings.TrimSuffix(after, ".")
			}
		}
	}
	if strings.Contains(text, "No module named 'pyspark'") {
		return "the interpreter has no pyspark: pip install pyspark of the cluster's version, or --python another one"
	}
	if strings.Contains(text, "JAVA_HOME is not set") || strings.Contains(text, "java: not found") ||
		strings.Contains(text, "java: command not found") {
		return "there is no Java for Spark here: install a JRE (17 for Spark 4), or set JAVA_HOME"
	}
	switch first, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); {
	case found != "":
		return found
	case strings.Contains(last, "JAVA_GATEWAY_EXITED"): // Java printed the reason before
		return "its Java ended: " + first
	}
	return last
}

// kill kills the process of a session; its JVM ends when its pipe closes.
func (a *allocation) kill(s *session) {
	if s != nil && s.process.Alive() {
		_ = syscall.Kill(s.process.PID, syscall.SIGKILL) // it may have ended
	}
}
