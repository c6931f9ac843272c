package clustertest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/state"
)

// folderVar is the folder of this process's tests. Processes that the tests start on this machine have it in their
// environment, unless an engine starts them.
const folderVar = "TFCLUSTER_TEST_FOLDER"

// folder is the folder of this process's tests. Main sets it before the tests run.
var folder = os.TempDir()

// timeoutRest is the time from the end of what the tests have started to the end of the process by -timeout.
const timeoutRest = 10 * time.Second

// Ender is a Shared of any type.
type Ender interface {
	End(testsFailed bool) (ok bool)
}

// Main runs a package's tests and then ends the shared values. It returns the exit code.
//
// The clusters, environments and settings of the tests are in a folder that Main removes, apart from the user's
// and from those of other packages. If the process is interrupted, or its parent (go test) ends, Main ends what the
// tests have started, and the process. Shortly before -timeout ends the process, what the tests have started ends, too.
//
// Tests of clusters may wait for a minute. Main runs one more test in parallel than there are processors, so
// that a waiting test does not hold up others, unless -parallel is set.
func Main(m *testing.M, shared ...Ender) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(runtime.GOMAXPROCS(0) + 1)) // a number is always valid
	}
	if err := isolate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var once sync.Once
	end := func(failed bool) (ok bool) {
		once.Do(func() {
			ok = true
			for _, s := range shared {
				ok = s.End(failed) && ok
			}
			if sockets, err := state.RuntimeDir(); err == nil {
				_ = os.Remove(sockets) // it is empty, unless something is left
			}
			if err := os.RemoveAll(folder); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
		return ok
	}
	if limit, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String()); err == nil && limit > timeoutRest {
		defer time.AfterFunc(limit-timeoutRest, killStarted).Stop()
	}
	go func() {
		why := Interrupted(context.Background())
		fmt.Fprintf(os.Stderr, "%s: the tests' processes are killed\n", why)
		killStarted()
		end(true)
		os.Exit(1)
	}()
	code := m.Run()
	if !end(code != 0) && code == 0 {
		code = 1
	}
	return code
}

// isolate sets the environment of the tests to a new folder.
func isolate() error {
	dir, err := os.MkdirTemp("", "tfcluster-test-")
	if err != nil {
		return err
	}
	folder = dir
	variables := map[string]string{
		folderVar: "", "TFCLUSTER_HOME": "state", "TFCLUSTER_CACHE": "environments", "XDG_CONFIG_HOME": "config",
	}
	for name, below := range variables {
		if err := os.Setenv(name, filepath.Join(dir, below)); err != nil {
			return err
		}
	}
	return nil
}

// Interrupted waits for a signal to end, or for the end of the parent process, and returns a text that names it. It
// returns "" if ctx ends first. A second signal ends the process at once.
func Interrupted(ctx context.Context) string {
	parent := os.Getppid()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case s := <-signals:
			return s.String()
		case <-ctx.Done():
			return ""
		case <-tick.C:
			if os.Getppid() != parent {
				return "the parent has ended"
			}
		}
	}
}

// killStarted kills the processes that the tests have started on this machine, and those that they start meanwhile.
func killStarted() {
	marker := []byte(folderVar + "=" + folder + "\x00") // another package's folder may begin with this one's name
	for range 20 {
		killed := 0
		dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
		for _, dir := range dirs {
			environ, err := os.ReadFile(filepath.Join(dir, "environ")) // empty for a zombie
			if err != nil || !bytes.Contains(environ, marker) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
				killed++
			}
		}
		if killed == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
