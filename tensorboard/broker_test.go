package tensorboard

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// TestBrokerProcess is not a test: it is the process that TestBrokersEnd starts.
func TestBrokerProcess(t *testing.T) {
	socket := os.Getenv("TFCLUSTER_TEST_BROKER")
	if socket == "" {
		t.Skip("runs as a process of TestBrokersEnd")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	if err := Broker(ctx, socket, filepath.Dir(socket)); err != nil {
		t.Fatal(err)
	}
}

// jupyterServer is a shell that has started a broker in the background, as
// jupyter-server-proxy does, and lives until it is killed.
func jupyterServer(t *testing.T, socket string) (server *exec.Cmd, broker int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `"$0" "$@" >&2 & echo $!; wait; read _`, os.Args[0],
		"-test.run=^TestBrokerProcess$")
	cmd.Env = append(os.Environ(), "TFCLUSTER_TEST_BROKER="+socket)
	_, err := cmd.StdinPipe() // which read waits for
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(out, &broker); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker listens", func() bool { return exists(socket) })
	return cmd, broker
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestBrokersEnd: with the Jupyter server that started it, however that ends, and with
// the folder that jupyter-server-proxy leaves behind; but never with the folder of a
// server that lives.
func TestBrokersEnd(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]struct{ terminated, killed, gone bool }{
		"the server is killed":          {killed: true, gone: true},
		"the server ends both":          {terminated: true, killed: true, gone: true},
		"somebody else ends the broker": {terminated: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(socketDir(t), proxyFolder+"x1y2z3")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(folder, "socket")
			server, broker := jupyterServer(t, socket)
			if in.terminated {
				if err := syscall.Kill(broker, syscall.SIGTERM); err != nil {
					t.Error(err)
				}
			}
			if in.killed {
				if err := server.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
			eventually(t, "the broker takes its socket with it", func() bool { return !exists(socket) })
			eventually(t, "the broker ends", func() bool {
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", broker))
				return err != nil || len(line) == 0 // a zombie has none
			})
			if exists(folder) == in.gone {
				t.Errorf("the folder is there: %t", in.gone)
			}
			if !in.killed {
				if err := server.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
			_ = server.Wait() // killed
		})
	}
}
