// Command tfcluster runs distributed TensorFlow from a notebook cell, on Spark, on
// YARN or on this machine. It is one binary: the Jupyter kernel, the driver of a
// cluster and the agent on each executor are its subcommands, so their versions
// never differ.
package main

import (
	"context"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "0.1.0-dev"

func main() {
	keepDescriptors()
	os.Exit(run(context.Background(), os.Args[1:]))
}

// keepDescriptors keeps what the caller left open from the processes that outlive us: a
// driver started under flock(1) would hold the lock for as long as the cluster lives. A
// system without close_range (Linux before 5.11) passes them on.
func keepDescriptors() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		args = []string{"help"}
	}
	if code, answered := help(ctx, args); answered {
		return code
	}
	if s := find(args[0]); s != nil && s.run != nil {
		return s.run(ctx, args[1:])
	}
	return runShell(ctx, args)
}

// complain says why a part of the program failed.
func complain(part string, err error) { fmt.Fprintln(os.Stderr, "tfcluster "+part+":", err) }
