package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

const (
	// sessionTimeout limits calls about the notebook's SparkSession. Another cell may hold Python, and Spark takes
	// several seconds for the first SparkSession of a SparkContext, and more on a busy host.
	sessionTimeout = time.Minute
	defaultSession = "spark" // its name in notebooks of Spark and Databricks
)

// Keys of a request for the notebook's own session, defined by cluster/spark.
const (
	engineSession  = "session"
	engineIdentity = "session_identity"
	engineMaster   = "master"
	engineHost     = "host"
)

// sparkSession sets the SparkSession of the cluster: the notebook's if it has one and there is
// no --master, otherwise one that the driver makes.
func (inv *invocation) sparkSession(ctx context.Context, req *clusterpb.ReserveRequest) error {
	asked := req.GetEngine()[engineSession]
	if asked != "" && req.GetEngine()[engineMaster] != "" {
		return command.Usagef(inv.Verb,
			"--session uses the notebook's SparkSession, --master makes another one: give only one of them")
	}
	if req.GetEngine()[engineMaster] != "" {
		return nil
	}
	name := cmp.Or(asked, defaultSession)
	var found struct {
		Found    bool   `json:"found"`
		Host     string `json:"host"`
		Unusable string `json:"unusable"` // the reason; "" if it is usable
		Identity string `json:"identity"` // a name of the object, whatever variable it is in
	}
	err := bridge.Ask(ctx, inv.py, sessionTimeout, "spark_session",
		map[string]any{"name": name, "asked": asked != ""}, &found)
	what := "the notebook's SparkSession " + name
	if name == found.Identity {
		what = "the SparkSession given to reserve"
	}
	switch {
	case errors.Is(err, bridge.ErrNoPython) && asked == "":
		return nil // the command line has no variables
	case err != nil:
		return fmt.Errorf("look at the notebook's SparkSession %s: %w", name, err)
	case !found.Found:
		return nil
	case found.Unusable != "":
		return &result.ClusterError{
			Text: what + " cannot be used: " + found.Unusable, Remedy: "make it again, then " + inv.session.Say("reserve"),
			Code: 69,
		}
	}
	if err := inv.suitsSession(req); err != nil {
		return err
	}
	req.Engine[engineSession] = name
	if found.Identity != "" {
		req.Engine[engineIdentity] = found.Identity
	}
	if found.Host != "" {
		req.Engine[engineHost] = found.Host
	}
	if !inv.Has("python") {
		req.Python = "" // executors have their own, by PYSPARK_PYTHON
	}
	return nil
}

// suitsSession refuses options that cannot change an existing session, and names Spark's
// settings.
func (inv *invocation) suitsSession(req *clusterpb.ReserveRequest) error {
	var cpus float64
	for _, role := range req.GetRoles() {
		cpus = max(cpus, role.GetEach().GetCpus())
	}
	for _, refused := range []struct {
		is              bool
		option, setting string
	}{
		{inv.gave("memory"), "memory", "spark.executor.memory and spark.executor.memoryOverhead"},
		{cpus > 1, "cpus", "spark.executor.cores and spark.task.cpus"},
		{inv.Has("packages"), "packages", "spark.jars.packages"},
		{inv.Has("queue"), "queue", "spark.yarn.queue"},
		{inv.Has("conf"), "conf", "those settings"},
	} {
		if refused.is {
			return command.Usagef(inv.Verb, "--%s cannot change a SparkSession that exists: set %s where the session is made, "+
				"or give --master for another", refused.option, refused.setting)
		}
	}
	return nil
}

// lendSession connects the notebook's SparkSession to the driver of a cluster that was just
// launched on it.
func (inv *invocation) lendSession(ctx context.Context, m *session.Handle, req *clusterpb.ReserveRequest) error {
	session := req.GetEngine()[engineSession]
	if engine, _ := inv.session.Options.Engines.Find(req.GetBackend()); !engine.NotebookSession || session == "" {
		return nil
	}
	socket, err := state.HostSocket(m.Name)
	if err != nil {
		return err
	}
	var lent bool
	return bridge.Ask(ctx, inv.py, sessionTimeout, "spark_lend", map[string]any{"name": session, "socket": socket}, &lent)
}
