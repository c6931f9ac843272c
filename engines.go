package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/agent/gpu"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/local"
	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/cluster/spark"
	"github.com/tfcluster/tfcluster/cluster/spark/slot"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
)

// This file alone imports the backends: what another engine needs of the program is here.

// backends are the engines that --backend names.
func backends() map[string]cluster.Backend {
	return map[string]cluster.Backend{
		"local": &local.Backend{Inventory: gpu.Inventory},
		"spark": &spark.Backend{PythonPath: python.Extract},
		"yarn":  &yarn.Backend{},
	}
}

// takeAttempt takes up the attempt of an application whose container this process is.
func takeAttempt(ctx context.Context, dir string) (*yarn.Attempt, error) {
	return yarn.TakeAttempt(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// managedBackends are the engines of a driver that its engine runs.
func managedBackends(attempt *yarn.Attempt) map[string]cluster.Backend {
	return map[string]cluster.Backend{"yarn": &yarn.Backend{Attempt: attempt}}
}

// agentConfig is an agent's configuration: of its container, or what a backend writes to its
// standard input.
func agentConfig(args []string) (*clusterpb.AgentConfig, error) {
	if slices.Contains(args, yarn.AgentCommand) {
		return yarn.ContainerConfig()
	}
	return clusterpb.ReadAgentConfig(os.Stdin)
}

// runSlot is `tfcluster spark-slot`, a task of Spark that starts an agent.
func runSlot(ctx context.Context, _ []string) error { return slot.Main(ctx, os.Stdin, os.Stdout) }

// exitCode is the exit code of a part that failed. An engine may read its own from it.
func exitCode(err error) int {
	if errors.Is(err, yarn.ErrDriver) {
		return yarn.UnreachableCode
	}
	return 1
}

// diagnoseHadoop looks at the Hadoop of a request, for doctor.
func diagnoseHadoop(ctx context.Context, r *clusterpb.ReserveRequest) []cluster.Check {
	return yarn.Diagnose(ctx, r)
}

// readContainerLogs reads what containers of a cluster that is over wrote.
func readContainerLogs(ctx context.Context, r *clusterpb.ReserveRequest, places []byte, q cluster.LogQuery, emit func(string, []*clusterpb.Line) error) error {
	return containerlogs.Read(ctx, r, places, q, emit)
}

// applicationOutcomes returns how applications ended, by their ids.
func applicationOutcomes(ctx context.Context, r *clusterpb.ReserveRequest, applications []string) map[string]string {
	return containerlogs.Outcomes(ctx, r, applications)
}
