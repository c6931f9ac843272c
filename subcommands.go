package main

import (
	"context"
	"fmt"
	"slices"
)

// subcommand is a first argument that is not one of the magics' verbs.
type subcommand struct {
	name string
	// run runs it and returns the exit code.
	run func(ctx context.Context, args []string) int
	// startedBy describes who starts an internal subcommand; "" for those that users start.
	startedBy string
	// usage is the help of a subcommand that users start.
	usage string
	// needsInput reports that it reads input from its parent process, and not from a terminal.
	needsInput bool
}

// subcommands returns all of them. guard and forker are started before main (cluster/agent/forking).
func subcommands() []subcommand {
	return []subcommand{
		{
			name: "kernel", run: runPart("kernel", runKernel),
			startedBy: "a Jupyter server starts, with -f FILE; tfcluster install registers it",
		},
		{name: "gate", run: runPart("gate", runGate), startedBy: "the Python package tfcluster starts in a plain ipykernel"},
		{
			name: "driver", run: runPart("driver", runDriver), startedBy: "reserve and run start, one for each cluster",
			needsInput: true,
		},
		{
			name: "appmaster", run: runPart("appmaster", runMaster),
			startedBy: "YARN starts in a container, for reserve --managed",
		},
		{
			name: "agent", run: runPart("agent", runAgent), startedBy: "a driver starts, one on each executor", needsInput: true,
		},
		{
			name: "spark-slot", run: runPart("spark-slot", runSlot),
			startedBy: "a task of Spark's starts, to start an agent on its executor", needsInput: true,
		},
		{
			name: "guard", startedBy: "an agent starts, one for each zygote or forker, to kill the processes that these leave " +
				"when they are killed",
		},
		{name: "forker", startedBy: "an agent starts, one on each host, for commands that need no Python"},
		{
			name: "broker", run: runPart("broker", runBroker),
			startedBy: "jupyter-server-proxy starts, with --socket PATH; tfcluster install registers it",
		},
		{name: "install", run: setup("install"), usage: installUsage},
		{name: "uninstall", run: setup("uninstall"), usage: installUsage},
		{name: "version", run: printVersion, usage: "tfcluster version prints this program's version\n"},
		{name: "--version", run: printVersion, usage: "tfcluster version prints this program's version\n"},
	}
}

// find returns the subcommand with a name, or nil.
func find(name string) *subcommand {
	all := subcommands()
	if i := slices.IndexFunc(all, func(s subcommand) bool { return s.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// runPart returns a function that runs a part of the program and prints its error.
func runPart(name string, run func(context.Context, []string) error) func(context.Context, []string) int {
	return func(ctx context.Context, args []string) int {
		if err := run(ctx, args); err != nil {
			printError(name, err)
			return exitCode(err)
		}
		return 0
	}
}

func setup(verb string) func(context.Context, []string) int {
	return func(_ context.Context, args []string) int { return runSetup(verb, args) }
}

func printVersion(context.Context, []string) int {
	fmt.Println("tfcluster", version)
	return 0
}
