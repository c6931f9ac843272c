package hosts

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clustertest/hosts"
)

// frontEnd is a front end of Jupyter without a browser: it executes the cells that it reads from its input, prints what
// a reader of the notebook sees, and says how each one ended.
const frontEnd = `
import json, sys
from jupyter_client.manager import start_new_kernel

def say(kind, content):
    if kind == "stream":
        print(content["text"], end="", flush=True)
    elif kind in ("execute_result", "display_data"):
        print(content["data"].get("text/plain", ""), flush=True)
    elif kind == "error":
        print("\n".join(content["traceback"]), flush=True)

manager, client = start_new_kernel(kernel_name="tfcluster", startup_timeout=120)
try:
    for n, line in enumerate(sys.stdin, 1):
        request, idle = client.execute(json.loads(line)), False
        while not idle:
            message = client.get_iopub_msg()
            say(message["msg_type"], message["content"])
            idle = message["parent_header"].get("msg_id") == request and (
                message["content"].get("execution_state") == "idle")
        reply = {}
        while reply.get("parent_header", {}).get("msg_id") != request:
            reply = client.get_shell_msg()
        print(f"\n[cell {n}: {reply['content']['status']}]", flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel()
`

// notebookKernel is a kernel on the notebook's host. Its output is that of all its cells.
type notebookKernel struct {
	*job
	in    io.Writer
	cells int // sent so far
}

// kernel starts a kernel of tfcluster, which ends with the test or by close.
func (s *site) kernel() *notebookKernel {
	s.t.Helper()
	share := hosts.Home + "/jupyter"
	spec, err := json.Marshal(map[string]any{
		"argv":         []string{s.program, "kernel", "-f", "{connection_file}", "--python", s.python},
		"display_name": "tfcluster", "language": "python", "interrupt_mode": "message",
	})
	if err != nil {
		s.t.Fatal(err)
	}
	folder := s.Path(notebook, share+"/kernels/tfcluster")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(folder, "kernel.json"): string(spec), s.Path(notebook, hosts.Home+"/front_end.py"): frontEnd,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	in, out, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer in.Close()
	s.t.Cleanup(func() { _ = out.Close() })
	env := append([]string{"JUPYTER_PATH=" + share}, s.env...)
	return &notebookKernel{job: s.start(in, env, s.python, hosts.Home+"/front_end.py"), in: out}
}

// send sends a cell and returns its number.
func (k *notebookKernel) send(code string) int {
	k.s.t.Helper()
	line, err := json.Marshal(code)
	if err == nil {
		_, err = k.in.Write(append(line, '\n'))
	}
	if err != nil {
		k.s.t.Fatal(err)
	}
	k.cells++
	return k.cells
}

// end waits for the end of a cell, and reports whether it succeeded and what it printed.
func (k *notebookKernel) end(cell int) (succeeded bool, text string) {
	k.s.t.Helper()
	mark := func(n int) string { return fmt.Sprintf("\n[cell %d: ", n) }
	k.sees(mark(cell))
	text, status, _ := strings.Cut(k.String(), mark(cell))
	if cell > 1 {
		_, text, _ = strings.Cut(text, mark(cell-1))
	}
	return strings.HasPrefix(status, "ok]"), text
}

// run executes a cell and returns what it printed. The test fails if the cell does.
func (k *notebookKernel) run(code string) string {
	k.s.t.Helper()
	succeeded, text := k.end(k.send(code))
	if !succeeded {
		k.s.t.Fatalf("the cell %q failed:\n%s", code, text)
	}
	return text
}

// close ends the kernel, and the cluster with it.
func (k *notebookKernel) close() {
	k.s.t.Helper()
	if err := k.in.(io.Closer).Close(); err != nil {
		k.s.t.Fatal(err)
	}
	k.ends()
}
