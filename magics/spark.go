package magics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// How long the notebook's Python may take about its SparkSession: another cell may hold it.
const (
	sessionTimeout = 15 * time.Second
	defaultSession = "spark" // as notebooks of Spark and Databricks call theirs
)

// Keys of a request for the notebook's own session, as cluster/spark reads them.
const (
	engineSession = "session"
	engineMaster  = "master"
	engineHost    = "host"
)

// sparkSession settles whose SparkSession the cluster is on: the notebook's, when it
// has one and no --master was given, or one that the driver makes.
func (inv *invocation) sparkSession(ctx context.Context, req *clusterpb.ReserveRequest) error {
	asked := req.GetEngine()[engineSession]
	if asked != "" && req.GetEngine()[engineMaster] != "" {
		return usagef(inv.Verb, "--session is the notebook's SparkSession, --master makes another: give one of them")
	}
	if req.GetEngine()[engineMaster] != "" {
		return nil
	}
	name := asked
	if name == "" {
		name = defaultSession
	}
	var found struct {
		Found bool   `json:"found"`
		Host  string `json:"host"`
	}
	err := ask(ctx, inv.py, sessionTimeout, "spark_session", map[string]any{"name": name, "asked": asked != ""}, &found)
	switch {
	case errors.Is(err, ErrNoPython) && asked == "":
		return nil // the command line, which has no names
	case err != nil:
		return fmt.Errorf("look at the notebook's SparkSession %s: %w", name, err)
	case !found.Found:
		return nil
	}
	req.Engine[engineSession] = name
	if found.Host != "" {
		req.Engine[engineHost] = found.Host
	}
	if !inv.Has("python") {
		req.Python = "" // executors have their own, as PYSPARK_PYTHON says
	}
	return nil
}

// lendSession has the notebook's SparkSession serve the driver of a cluster that was
// just launched on it.
func (inv *invocation) lendSession(ctx context.Context, m *member, req *clusterpb.ReserveRequest) error {
	session := req.GetEngine()[engineSession]
	if req.GetBackend() != "spark" || session == "" {
		return nil
	}
	socket, err := cluster.HostSocket(m.name)
	if err != nil {
		return err
	}
	var lent bool
	return ask(ctx, inv.py, sessionTimeout, "spark_lend", map[string]any{"name": session, "socket": socket}, &lent)
}
