// Command engines runs a command beside a Hadoop and a Spark that the tests of all packages share:
//
//	engines COMMAND [ARGUMENT...]
//
// It starts them, runs the command with their places in its environment (hadooptest.SharedVar, sparktest.SharedVar,
// and the URL of Spark's master for tests in Python), and stops them. What is missing on this machine is named, and
// left out: then each test says so itself. The exit code is the command's, or 1 if a test has left an application or
// a process behind. On a signal, or when the parent ends, the command gets SIGTERM, and the engines end after it; on a
// second signal they end at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// masterVar is the environment variable with the URL of Spark's master.
const masterVar = "TFCLUSTER_TEST_SPARK_MASTER"

// endLimit is how long an interrupted command may take to end what it has started.
const endLimit = time.Minute

func main() {
	testing.Init() // the kits read the flags of tests
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: engines COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		if why := clustertest.Interrupted(ctx); why != "" {
			fmt.Fprintf(os.Stderr, "engines: %s\n", why)
		}
		cancel()
	}()
	code, err := run(ctx, flag.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "engines: %v\n", err)
	}
	os.Exit(code)
}

// run starts the engines, runs the command and stops the engines. It returns the exit code.
func run(ctx context.Context, command []string) (int, error) {
	dir, err := os.MkdirTemp("", "tfcluster-engines-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	hadoop := clustertest.Share(hadooptest.StartShared)
	spark := clustertest.Share(func(t testing.TB) *sparktest.Cluster { return sparktest.Shared(t, nil) })
	var env []string
	var mu sync.Mutex
	add := func(kv ...string) {
		mu.Lock()
		defer mu.Unlock()
		env = append(env, kv...)
	}
	var starting sync.WaitGroup
	starting.Go(func() {
		path := filepath.Join(dir, "hadoop.json")
		if h, err := hadoop.Start(); report("Hadoop", err) && report("Hadoop", h.Save(path)) {
			add(hadooptest.SharedVar + "=" + path)
		}
	})
	starting.Go(func() {
		path := filepath.Join(dir, "spark.json")
		if s, err := spark.Start(); report("Spark", err) && report("Spark", s.Save(path)) {
			add(sparktest.SharedVar+"="+path, masterVar+"="+s.URL)
		}
	})
	starting.Wait()
	code, err := runCommand(ctx, command, env)
	interrupted := ctx.Err() != nil // what the command left is then not a failure of a test
	if ended := hadoop.End(interrupted); !spark.End(interrupted) || !ended {
		code = max(code, 1)
	}
	return code, err
}

// report reports whether an engine has started, and says why not.
func report(engine string, err error) bool {
	switch {
	case errors.Is(err, clustertest.ErrSkipped):
		fmt.Fprintf(os.Stderr, "engines: no %s: %v\n", engine, err)
	case err != nil:
		fmt.Fprintf(os.Stderr, "engines: %s: %v\n", engine, err)
	}
	return err == nil
}

// runCommand runs the command with more variables in its environment and returns its exit code.
func runCommand(ctx context.Context, command, env []string) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // Pdeathsig applies to the thread that forks
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endLimit
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	}
	return 1, fmt.Errorf("run %s: %w", command[0], err)
}
