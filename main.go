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

// keepDescriptors prevents processes that outlive this one from inheriting the caller's open files: a
// driver started under flock(1) would hold the lock as long as the cluster lives. Linux before 5.11 has no
// close_range; there the files are inherited.
func keepDescriptors() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}

// run runs the program and returns the exit code.
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

// printError prints why a part of the program failed.
func printError(part string, err error) { fmt.Fprintln(os.Stderr, "tfcluster "+part+":", err) }
