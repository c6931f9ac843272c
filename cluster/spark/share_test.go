package spark_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// client uses a session over Spark Connect, as Cluster.spark() in a notebook does.
const client = `
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.stdin.readline().strip()).create()
print("sum", spark.range(10).selectExpr("sum(id) s").first().s)
`

// TestShare: a notebook uses the session that a cluster made, and nobody without its
// token does.
func TestShare(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	cl := own(t, c).Start(t, "worker=1")
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	reply, err := cl.EngineSession(ctx, &clusterpb.EngineSessionRequest{})
	if !hasConnect(t, c) { // Spark 3.5, whose server knows no token
		if err == nil || !strings.Contains(err.Error(), "lets anybody in") {
			t.Errorf("a server of Spark Connect that lets anybody in: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	address, token, _ := strings.Cut(reply.GetRemote(), ";")
	if reply.GetName() != "" || !strings.HasPrefix(address, "sc://localhost:") || !strings.HasPrefix(token, "token=") {
		t.Fatalf("the session is %v", reply)
	}
	use := func(remote string) (string, error) {
		cmd := exec.CommandContext(ctx, c.Python, "-c", client)
		cmd.Env, cmd.Dir, cmd.Stdin = c.Environment(), t.TempDir(), strings.NewReader(remote+"\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := use(reply.GetRemote()); err != nil || !strings.Contains(out, "sum 45") {
		t.Errorf("with the token: %v: %s", err, out)
	}
	for _, other := range []string{address, address + ";token=another"} {
		if out, err := use(other); err == nil {
			t.Errorf("without the token: %s", out)
		}
	}
}
