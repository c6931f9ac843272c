package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/agent/gpu"
	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/magics"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/panel"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// runKernel is `tfcluster kernel -f FILE [--python PATH]`: the proxy kernel with the magics.
func runKernel(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kernel", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	file := flags.String("f", "", "connection file")
	interpreter := flags.String("python", "", "interpreter that has ipykernel")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" {
		return fmt.Errorf(
			"-f FILE is missing: only a Jupyter server starts this kernel; tfcluster install registers it there")
	}
	if *interpreter == "" {
		*interpreter = findPython()
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := newNotebook(ctx, *file, *interpreter, log)
	if err != nil {
		return err
	}
	defer n.close()
	k, err := kernel.New(kernel.Config{
		ConnectionFile: *file, Python: *interpreter, Interceptor: n, ChildEnv: n.childEnv(),
		ChildArgs: []string{"--ext=tfcluster"}, Log: log, Banner: "TFCluster " + version +
			" — %tfcluster? lists the commands",
	})
	if err != nil {
		return err
	}
	return k.Run(ctx)
}

// notebook connects the kernel and the magics, which do not depend on each other.
type notebook struct {
	session *magics.Session
	gate    *bridge.Gate
	path    string // of the Python package
	binary  string
	ctx     context.Context
	log     *slog.Logger
}

var _ kernel.Interceptor = (*notebook)(nil)

func newNotebook(ctx context.Context, connectionFile, interpreter string, log *slog.Logger) (*notebook, error) {
	path, err := packagePath()
	if err != nil {
		return nil, err
	}
	binary, err := ownPath()
	if err != nil {
		return nil, err
	}
	opt, err := sessionOptions(connectionFile, interpreter)
	if err != nil {
		return nil, err
	}
	opt.Channels = func() (session.Channels, error) { return channels(connectionFile) }
	s := magics.NewSession(ctx, opt)
	gate, err := bridge.OpenGate(ctx, s, s)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &notebook{session: s, gate: gate, path: path, binary: binary, ctx: ctx, log: log}, nil
}

// sessionOptions returns the options of a notebook's session. TensorBoard runs in the notebook's Python
// environment, unless another one is set.
func sessionOptions(connectionFile, interpreter string) (session.Options, error) {
	binary, err := ownPath()
	if err != nil {
		return session.Options{}, err
	}
	owner := ""
	if connectionFile != "" {
		owner = filepath.Base(connectionFile)
	}
	return session.Options{
		Connector: magics.LocalDrivers{Program: binary}, Owner: owner, Client: "kernel " + owner, Python: interpreter,
		TensorBoardPython: cmp.Or(os.Getenv("TFCLUSTER_TENSORBOARD_PYTHON"), interpreter), Version: version,
		Inventory: gpu.Inventory, Engines: engines(nil), History: history{}, Remains: remainsOfInstall,
	}, nil
}

// channels reads from the connection file how Jupyter reaches this kernel.
func channels(connectionFile string) (session.Channels, error) {
	c, err := kernel.ReadConnection(connectionFile)
	switch {
	case err != nil:
		return session.Channels{}, err
	case c.Transport == "ipc":
		return session.Channels{Encrypted: c.Encrypted()}, nil
	}
	return session.Channels{Encrypted: c.Encrypted(), Host: c.IP}, nil
}

// packagePath extracts the Python package to the user's cache folder and returns its path.
func packagePath() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf(
				"there is no folder for the Python package: %w; set HOME, or XDG_CACHE_HOME to a folder that you may write", err)
		}
		base = filepath.Join(home, ".cache")
	}
	path, err := python.Extract(filepath.Join(base, "tfcluster"))
	if err != nil {
		return "", fmt.Errorf("%w; free space there, or set XDG_CACHE_HOME to a folder that you may write", err)
	}
	return path, nil
}

func (n *notebook) close() {
	n.gate.Close()
	n.session.Close()
}

// Match implements kernel.Interceptor.
func (n *notebook) Match(code string) kernel.Match {
	p := n.session.Read(code)
	switch {
	case p == nil:
		return kernel.Match{}
	case p.Now:
		return kernel.Match{Mode: kernel.Now, Plan: plan{n, p}}
	default:
		return kernel.Match{Mode: kernel.Queue, NowHint: p.Hint, Plan: plan{n, p}}
	}
}

// plan is a parsed cell of magics.
type plan struct {
	notebook *notebook
	cell     *command.Plan
}

// Run implements kernel.Plan.
func (p plan) Run(ctx context.Context, c *kernel.Cell) kernel.Result {
	v, err := p.notebook.session.Run(ctx, p.cell, c, p.notebook.gate)
	if r := result.NewReport(err).WithHelp(false); r != nil {
		return kernel.Result{
			Err: &kernel.CellError{Name: r.Name, Value: r.Value, Traceback: []string{strings.Join(r.Lines, "\n")}},
		}
	}
	raw, err := result.JSON(v)
	if err != nil || v == nil {
		return kernel.Result{}
	}
	word, err := json.Marshal(string(raw))
	if err != nil {
		return kernel.Result{Data: result.Bundle(v)}
	}
	return kernel.Result{Data: result.Bundle(v), After: "__import__('tfcluster')._store(__count__, " + string(word) + ")"}
}

// Complete implements kernel.Interceptor.
func (n *notebook) Complete(ctx context.Context, code string, cursor int) (kernel.Completion, bool) {
	c := n.session.Complete(ctx, code, cursor, n.gate)
	if c == nil {
		return kernel.Completion{}, false
	}
	return kernel.Completion{Matches: c.Matches, Start: c.Start, End: c.End}, true
}

// Inspect implements kernel.Interceptor.
func (n *notebook) Inspect(_ context.Context, code string, cursor int) (map[string]any, bool) {
	data := n.session.Inspect(code, cursor)
	return data, data != nil
}

// commBacklog bounds the number of a front end's pending messages.
const commBacklog = 16

// OpenComm implements kernel.Interceptor: the extension's comm is served beside any cell.
func (n *notebook) OpenComm(c *kernel.Comm) bool {
	if c.Target != panel.Target {
		return false
	}
	ctx, cancel := context.WithCancel(n.ctx)
	messages := make(chan json.RawMessage, commBacklog)
	var dropped sync.Once
	c.OnMessage = func(data json.RawMessage) {
		select {
		case messages <- data:
		default: // the panel's server has had no time for the others
			dropped.Do(func() {
				n.log.Warn("messages of the panel are dropped: this host is too busy to read them; "+
					"reload the page if it does not change", "waiting", commBacklog)
			})
		}
	}
	c.OnClose = cancel
	go func() { // ends by OnClose, the lease, or the session's end
		defer cancel()
		n.session.ServePanel(ctx, n.gate, messages, c.Send)
		c.Close()
	}()
	return true
}

// childEnv returns the environment variables with which Python finds the package and the gate.
func (n *notebook) childEnv() []string {
	path := n.path
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	return []string{"PYTHONPATH=" + path, "TFCLUSTER_GATE=" + n.gate.Path(), "TFCLUSTER_BINARY=" + n.binary}
}

// Shutdown implements kernel.Interceptor.
func (n *notebook) Shutdown(ctx context.Context, restart bool) { n.session.Shutdown(ctx, restart) }

// runGate is `tfcluster gate`, which the Python package starts in a plain ipykernel.
func runGate(ctx context.Context, args []string) error {
	interpreter := ""
	if i := slices.Index(args, "--python"); i >= 0 && i+1 < len(args) {
		interpreter = args[i+1]
	}
	opt, err := sessionOptions("", interpreter)
	if err != nil {
		return err
	}
	return magics.GateMain(ctx, args, opt, os.NewFile(3, "lifeline"))
}
