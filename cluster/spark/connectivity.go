package spark

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// masterTimeout bounds a connection to a master.
const masterTimeout = 4 * time.Second

// reachMaster returns an error if no standalone master can be reached; Spark itself retries for
// a minute.
func reachMaster(ctx context.Context, r *clusterpb.ReserveRequest) error {
	addresses, ok := strings.CutPrefix(masterOf(r), "spark://")
	if !ok || onNotebookSession(r) {
		return nil
	}
	var problems []error
	for address := range strings.SplitSeq(addresses, ",") {
		dialing, cancel := context.WithTimeout(ctx, masterTimeout)
		conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", address)
		cancel()
		if err == nil {
			return conn.Close()
		}
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		problems = append(problems, err)
	}
	return fmt.Errorf("no Spark master answers at spark://%s: %w; see that it runs, and its URL on its web page",
		addresses, problems[len(problems)-1])
}
