// Command tfcluster runs distributed TensorFlow from a notebook cell, on Spark, on
// YARN or on this machine. It is one binary: the Jupyter kernel, the driver of a
// cluster and the agent on each executor are its subcommands, so their versions
// never differ.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/spark/slot"
	"github.com/tfcluster/tfcluster/cluster/yarn"
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
	if code, ok := help(ctx, args); ok {
		return code
	}
	var err error
	switch rest := args[1:]; args[0] {
	case "kernel":
		err = runKernel(ctx, rest)
	case "gate":
		err = runGate(ctx, rest)
	case "driver":
		err = runDriver(ctx)
	case "appmaster":
		err = runMaster(ctx)
	case "agent":
		err = runAgent(ctx, rest)
	case "spark-slot":
		err = slot.Main(ctx, os.Stdin, os.Stdout)
	case "broker":
		err = runBroker(ctx, rest)
	case "install", "uninstall":
		return runSetup(args[0], rest)
	case "version", "--version":
		fmt.Println("tfcluster", version)
	default:
		return runShell(ctx, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tfcluster "+args[0]+":", err)
		if errors.Is(err, yarn.ErrDriver) {
			return yarn.UnreachableCode
		}
		return 1
	}
	return 0
}
