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

// masterTimeout is how long a master may take to accept a connection.
const masterTimeout = 4 * time.Second

// reachMaster tells at once that no standalone master is there; Spark itself tries for
// a minute before it says so.
func reachMaster(ctx context.Context, r *clusterpb.ReserveRequest) error {
	addresses, ok := strings.CutPrefix(masterOf(r), "spark://")
	if !ok || borrowed(r) {
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
	return fmt.Errorf("no Spark master answers at spark://%s: %w; see that it runs, and its URL on its web page", addresses, problems[len(problems)-1])
}
