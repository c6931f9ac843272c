package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Connection is the content of a connection file
// (https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files).
type Connection struct {
	IP          string `json:"ip"`
	Transport   string `json:"transport"`
	ShellPort   int    `json:"shell_port"`
	IOPubPort   int    `json:"iopub_port"`
	StdinPort   int    `json:"stdin_port"`
	ControlPort int    `json:"control_port"`
	HBPort      int    `json:"hb_port"`
	Key         string `json:"key"`
	Scheme      string `json:"signature_scheme"`
	KernelName  string `json:"kernel_name,omitempty"`
}

// ErrCurve is returned for a connection file with keys for CurveZMQ, which the kernel does not implement.
var ErrCurve = errors.New("the connection file asks for CurveZMQ encryption, which this kernel does not support: set KernelManager.transport_encryption to \"disabled\" or \"auto\"")

// ReadConnection reads a connection file and checks that it can be served.
func ReadConnection(path string) (*Connection, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("open connection file: %w", err)
	}
	var curve struct {
		Public string `json:"curve_publickey"`
		Secret string `json:"curve_secretkey"`
	}
	c := &Connection{}
	if err := errors.Join(json.Unmarshal(b, c), json.Unmarshal(b, &curve)); err != nil {
		return nil, fmt.Errorf("read connection file %s: %w", path, err)
	}
	switch {
	case curve.Public != "" || curve.Secret != "":
		return nil, ErrCurve
	case c.Scheme != "" && c.Scheme != "hmac-sha256":
		return nil, fmt.Errorf("connection file %s: the signature scheme %q is not served, only hmac-sha256", path, c.Scheme)
	case c.Transport != "tcp" && c.Transport != "ipc":
		return nil, fmt.Errorf("connection file %s: the transport %q is not served, only tcp and ipc", path, c.Transport)
	}
	return c, nil
}

// endpoint is where a channel's port is found.
func (c *Connection) endpoint(port int) string {
	if c.Transport == "ipc" {
		return fmt.Sprintf("ipc://%s-%d", c.IP, port)
	}
	return fmt.Sprintf("tcp://%s:%d", c.IP, port)
}
