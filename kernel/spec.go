package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// WriteSpec writes kernel.json and nothing else into dir, a kernelspec's own folder
// (PREFIX/share/jupyter/kernels/NAME), whole or not at all.
func WriteSpec(dir string, s Spec) error {
	b, err := s.JSON()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the kernelspec's folder: %w", err)
	}
	f, err := os.CreateTemp(dir, ".kernel.json-")
	if err != nil {
		return fmt.Errorf("write kernelspec: %w", err)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, "kernel.json"))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write kernelspec: %w", err), os.Remove(f.Name()))
	}
	return nil
}
