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
)

// This file alone imports the backends: what another engine needs of the program is here.

// engines are those that --backend names. attempt is that of the application whose container
// this process is in; nil outside of one.
func engines(attempt *yarn.Attempt) cluster.Engines {
	return cluster.Engines{local.Engine(gpu.Inventory), spark.Engine(python.Extract), yarn.Engine(attempt)}
}

// takeAttempt takes up the attempt of an application whose container this process is.
func takeAttempt(ctx context.Context, dir string) (*yarn.Attempt, error) {
	return yarn.OpenAttempt(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
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
	if errors.Is(err, yarn.ErrDriverUnreachable) {
		return yarn.UnreachableCode
	}
	return 1
}
