package main

import (
	"context"
	"fmt"
	"slices"
)

// subcommand is a first argument that is not a verb of the table of magics.
type subcommand struct {
	name string
	// run does it and returns the exit code.
	run func(ctx context.Context, args []string) int
	// startedBy says who starts a part that is not for people; "" for what is.
	startedBy string
	// usage is the help of what is for people.
	usage string
	// needsInput is whether it reads what the one who starts it writes: not for terminals.
	needsInput bool
}

// subcommands are all of them. guard and forker begin before main does
// (cluster/agent/forking).
func subcommands() []subcommand {
	return []subcommand{
		{name: "kernel", run: runPart("kernel", runKernel), startedBy: "a Jupyter server starts, with -f FILE; tfcluster install registers it"},
		{name: "gate", run: runPart("gate", runGate), startedBy: "the Python package tfcluster starts where there is no kernel of ours"},
		{name: "driver", run: runPart("driver", runDriver), startedBy: "reserve and run start, one for each cluster", needsInput: true},
		{name: "appmaster", run: runPart("appmaster", runMaster), startedBy: "YARN starts in a container, for reserve --managed"},
		{name: "agent", run: runPart("agent", runAgent), startedBy: "a driver starts, one on each executor", needsInput: true},
		{name: "spark-slot", run: runPart("spark-slot", runSlot), startedBy: "a task of Spark's starts, to start an agent on its executor", needsInput: true},
		{name: "guard", startedBy: "an agent starts, one for each zygote or forker, to end what these leave when they are killed"},
		{name: "forker", startedBy: "an agent starts, one on each host, where no Python is wanted"},
		{name: "broker", run: runPart("broker", runBroker), startedBy: "jupyter-server-proxy starts, with --socket PATH; tfcluster install registers it"},
		{name: "install", run: setup("install"), usage: installUsage},
		{name: "uninstall", run: setup("uninstall"), usage: installUsage},
		{name: "version", run: printVersion, usage: "tfcluster version prints this program's version\n"},
		{name: "--version", run: printVersion, usage: "tfcluster version prints this program's version\n"},
	}
}

// find returns the subcommand with a name; nil for a verb of the table of magics.
func find(name string) *subcommand {
	all := subcommands()
	if i := slices.IndexFunc(all, func(s subcommand) bool { return s.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// runPart runs a part of the program and tells its failure.
func runPart(name string, run func(context.Context, []string) error) func(context.Context, []string) int {
	return func(ctx context.Context, args []string) int {
		if err := run(ctx, args); err != nil {
			complain(name, err)
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
