package main

import (
	"context"
	"errors"
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

// This file contains everything that the program needs of an engine. Only it imports the backends, except that
// driver.go imports cluster/yarn, to run the driver as a managed ApplicationMaster.

// engines returns the engines that --backend names. attempt is the managed ApplicationMaster's attempt that
// this process is, or nil.
func engines(attempt *yarn.Attempt) cluster.Engines {
	return cluster.Engines{local.Engine(gpu.CheckFree), spark.Engine(python.Extract), yarn.Engine(attempt)}
}

// agentConfig reads an agent's configuration from its YARN container, or from standard input, to which the
// backend writes it.
func agentConfig(args []string) (*clusterpb.AgentConfig, error) {
	if slices.Contains(args, yarn.AgentCommand) {
		return yarn.ContainerConfig()
	}
	return clusterpb.ReadAgentConfig(os.Stdin)
}

// runSlot is `tfcluster spark-slot`, a task of Spark that starts an agent.
func runSlot(ctx context.Context, _ []string) error { return slot.Main(ctx, os.Stdin, os.Stdout) }

// exitCode returns the exit code for an error. An engine may define its own.
func exitCode(err error) int {
	if errors.Is(err, yarn.ErrDriverUnreachable) {
		return yarn.UnreachableCode
	}
	return 1
}
