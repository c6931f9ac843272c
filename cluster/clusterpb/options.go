package clusterpb

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// StepTimeout returns how long a run may report no step; 0: for ever.
func (x *RunOptions) StepTimeout() time.Duration {
	return time.Duration(x.GetStepTimeoutMillis()) * time.Millisecond
}

// RunTimeout returns how long a run may last; 0: for ever.
func (x *RunOptions) RunTimeout() time.Duration {
	return time.Duration(x.GetRunTimeoutMillis()) * time.Millisecond
}

// JSON returns the options for a task's Python, with the names of cluster.proto and without
// zero values.
func (x *RunOptions) JSON() (json.RawMessage, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(x)
	if err != nil {
		return nil, errtext.Fault("encode the run's options: %w", err)
	}
	return b, nil
}
