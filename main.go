// Command tfcluster runs distributed TensorFlow from a notebook cell, on Spark, on
// YARN or on this machine. It is one binary: the Jupyter kernel, the driver of a
// cluster and the agent on each executor are its subcommands, so their versions
// never differ.
package main

import (
	"context"
	_ "embed" // for VERSION
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// release is the version as in PEP 440; the wheel's is from the same file.
//
//go:embed VERSION
var release string

// build is the commit of a build that is no release, as PEP 440's local version: -ldflags "-X main.build=+g…".
var build string

// version is that of this program. A driver and its agents have the same.
var version = strings.TrimSpace(release) + build

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

// ownPath returns the path of this program.
func ownPath() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the system does not tell the path of this program: %w; mount /proc", err)
	}
	return path, nil
}

// printError prints why a part of the program failed.
func printError(part string, err error) {
	fmt.Fprintln(os.Stderr, "tfcluster "+part+": "+errtext.WithRemedy(err.Error()))
}
