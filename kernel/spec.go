package kernel

import (
	"encoding/json"
	"fmt"
)

// Spec is a kernelspec (https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs).
type Spec struct {
	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"`
	Env           map[string]string `json:"env,omitempty"`
	Metadata      map[string]any    `json:"metadata"`
}

// NewSpec is the kernelspec of a kernel for Python cells whose front ends may debug.
// argv holds {connection_file} where the path goes.
func NewSpec(displayName string, argv []string, env map[string]string) Spec {
	return Spec{Argv: argv, DisplayName: displayName, Language: "python", InterruptMode: "message", Env: env, Metadata: map[string]any{"debugger": true}}
}

// JSON is the content of kernel.json.
func (s Spec) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode kernelspec: %w", err)
	}
	return append(b, '\n'), nil
}
