// Command tfcluster runs distributed TensorFlow from a notebook cell, on Spark, on
// YARN or on this machine. It is one binary: the Jupyter kernel, the driver of a
// cluster and the agent on each executor are its subcommands, so their versions
// never differ.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/agent"
	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/local"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "0.1.0-dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:]))
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: tfcluster VERB [options]; tfcluster help lists the verbs")
		return 2
	}
	var err error
	switch args[0] {
	case "driver":
		err = runDriver(ctx)
	case "agent":
		err = agent.Main(ctx, os.Stdin, version)
	case "version", "--version":
		fmt.Println("tfcluster", version)
	default:
		return runShell(ctx, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tfcluster "+args[0]+":", err)
		return 1
	}
	return 0
}

func runDriver(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return driver.Main(ctx, driver.Options{
		Version: version, Program: program,
		Backends: map[string]cluster.Backend{
			"local": &local.Backend{Inventory: agent.Inventory},
		},
	}, os.Stdin, os.NewFile(3, "word"))
}
