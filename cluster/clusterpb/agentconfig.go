package clusterpb

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// ErrAgentConfig is the error for a configuration that this version cannot decode.
var ErrAgentConfig = errors.New("it cannot be decoded")

// maxAgentConfig bounds an agent's encoded configuration, in bytes.
const maxAgentConfig = 1 << 20

// Encode encodes the configuration for ReadAgentConfig. The result contains a private key.
func (x *AgentConfig) Encode() ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(x)
	if err != nil {
		return nil, errtext.Fault("encode the agent's configuration: %w", err)
	}
	return b, nil
}

// ReadAgentConfig reads a configuration to the end of r. It ignores unknown fields, which a
// later version may have written: its driver then refuses the agent and says why.
func ReadAgentConfig(r io.Reader) (*AgentConfig, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxAgentConfig))
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("read the agent's configuration: %w: it is empty", ErrAgentConfig)
	}
	x := &AgentConfig{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, x); err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w: %w", ErrAgentConfig, err)
	}
	return x, nil
}
