package kernel

import (
	"encoding/json"
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

// NewSpec returns the kernelspec of a Python kernel with a debugger and encrypted channels (JEP
// 145). argv contains {connection_file} in place of the path.
func NewSpec(displayName string, argv []string, env map[string]string) Spec {
	return Spec{
		Argv: argv, DisplayName: displayName, Language: "python", InterruptMode: "message", Env: env,
		Metadata: map[string]any{"debugger": true, "supported_encryption": []string{"curve"}},
	}
}

// JSON returns the contents of kernel.json.
func (s Spec) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}
