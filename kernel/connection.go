package kernel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// Connection is the contents of a connection file
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

	curve *zmtp.CurveKeys // nil without encryption; not for the child, whose link is a private socket
}

// Encrypted returns whether the connection file has CURVE keys: then all channels are encrypted.
func (c *Connection) Encrypted() bool { return c.curve != nil }

// ErrCurve is returned for a connection file whose CURVE keys cannot be used. The wrapping error
// contains no part of a key.
var ErrCurve = errors.New("its CURVE keys cannot be used")

// ReadConnection reads a connection file and checks that its settings are supported.
func ReadConnection(path string) (*Connection, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the connection file of Jupyter cannot be opened: %w; start the kernel again", err)
	}
	var keys struct {
		Public string `json:"curve_publickey"`
		Secret string `json:"curve_secretkey"`
	}
	c := &Connection{}
	if err := cmp.Or(json.Unmarshal(b, c), json.Unmarshal(b, &keys)); err != nil {
		return nil, fmt.Errorf("read connection file %s: it is not the JSON of a connection file: %w; "+
			"start the kernel again, with a new file", path, err)
	}
	switch {
	case c.Scheme != "" && c.Scheme != "hmac-sha256":
		return nil, fmt.Errorf("connection file %s: the signature scheme %q is not supported: "+
			"set Session.signature_scheme of Jupyter to hmac-sha256", path, c.Scheme)
	case c.Transport != "tcp" && c.Transport != "ipc":
		return nil, fmt.Errorf("connection file %s: the transport %q is not supported: set transport of Jupyter's kernel "+
			"manager to tcp or ipc", path, c.Transport)
	case keys.Public == "" && keys.Secret == "":
		return c, nil
	case keys.Public == "" || keys.Secret == "":
		return nil, fmt.Errorf("connection file %s: %w: curve_publickey or curve_secretkey is missing; "+
			"whatever writes the file must give both or neither", path, ErrCurve)
	}
	c.curve, err = zmtp.ParseCurveKeys(keys.Public, keys.Secret)
	if err != nil {
		return nil, fmt.Errorf("connection file %s: %w: %w; start the kernel again, with a new file, "+
			"or set transport_encryption of Jupyter's kernel manager to \"disabled\"", path, ErrCurve, err)
	}
	return c, nil
}

// endpoint returns the ZeroMQ endpoint of a port.
func (c *Connection) endpoint(port int) string {
	if c.Transport == "ipc" {
		return fmt.Sprintf("ipc://%s-%d", c.IP, port)
	}
	return fmt.Sprintf("tcp://%s:%d", c.IP, port)
}
