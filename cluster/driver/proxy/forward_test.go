package proxy

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestReserveFailures: a reservation that failed says what to do next.
func TestReserveFailures(t *testing.T) {
	t.Parallel()
	const again = "correct what the reason names, then %tfcluster reserve again; %tfcluster doctor checks this machine " +
		"and the engine"
	for _, tt := range []struct {
		why          error
		kind, remedy string
		code         int32
	}{
		{errors.New("no such queue"), "engine", again, 69},
		{
			errors.New("write /x: no space left on device"), "engine",
			"free space, or file entries (df -i), on that disk; then %tfcluster reserve again", 69,
		},
		{
			fmt.Errorf("%w after 1m: queued", errLate), "timeout",
			"correct what the reason names, choose another --queue, or give --reserve-timeout more time", 75,
		},
	} {
		p := &Proxy{
			cfg:  Config{Request: &clusterpb.ReserveRequest{}},
			link: link{changed: make(chan struct{})}, done: make(chan struct{}),
		}
		p.setEnded(tt.why)
		client := clusterpb.NewControlClient(
			serveOn(t, grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodec(raw{}))))
		stream, err := client.Reserve(t.Context(), &clusterpb.ReserveRequest{})
		if err != nil {
			t.Fatal(err)
		}
		u, err := stream.Recv()
		if f := u.GetFailure(); err != nil || f.GetKind() != tt.kind || f.GetRemedy() != tt.remedy ||
			f.GetExitCode() != tt.code || f.GetSummary() != tt.why.Error() {
			t.Errorf("%v: %v, %v", tt.why, u, err)
		}
	}
}
