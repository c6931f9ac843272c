package clustertest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/state"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// victimVar makes TestVictim start a process and wait.
const victimVar = "TFCLUSTER_TEST_VICTIM"

// TestVictim is the test that TestInterrupted interrupts.
func TestVictim(t *testing.T) {
	if os.Getenv(victimVar) == "" {
		t.Skip("a part of TestInterrupted")
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as drivers
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("victim", cmd.Process.Pid, folder)
	_ = cmd.Wait() // it is killed
	select {}
}

// TestInterrupted: the processes that tests have started end, and the tests' folder is removed, when the tests get
// SIGTERM and when their parent (go test) is killed.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		command string // of the parent; $0 is the tests' program
		signal  syscall.Signal
	}{
		{"the tests get SIGTERM", `exec "$0" -test.run='^TestVictim$'`, syscall.SIGTERM},
		{"their parent is killed", `"$0" -test.run='^TestVictim$' & wait`, syscall.SIGKILL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", tt.command, os.Args[0])
			cmd.Env = append(os.Environ(), victimVar+"=1")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			var dir string
			for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "victim ") {
					_, err = fmt.Sscanf(lines.Text(), "victim %d %s", &pid, &dir)
				}
			}
			if err != nil || dir == "" {
				t.Fatalf("the tests did not start: %v", err)
			}
			started := state.ProcessOf(pid)
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it is killed, or exits with 1
			WaitFor(t, "the end of what the tests have started", func() bool { return !started.Alive() })
			WaitFor(t, "the removal of the tests' folder", func() bool {
				_, err := os.Stat(dir)
				return errors.Is(err, fs.ErrNotExist)
			})
		})
	}
}
