package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/magics"
)

// panelVar has the test's program be a kernel with an open panel: see talkToPanel.
const panelVar = "TFCLUSTER_TEST_PANEL"

// talkToPanel sends each line of standard input to the panel's server of a new session, and prints its first answer.
func talkToPanel() error {
	opt, err := sessionOptions("", "")
	if err != nil {
		return err
	}
	s := magics.NewSession(context.Background(), opt)
	defer s.Close()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		messages, answers := make(chan json.RawMessage, 1), make(chan any, 1)
		messages <- slices.Clone(in.Bytes())
		go s.ServePanel(ctx, nil, messages, func(data any) {
			select {
			case answers <- data:
			default:
			}
		})
		select {
		case a := <-answers:
			if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
				cancel()
				return err
			}
		case <-ctx.Done():
		}
		cancel()
	}
	return nil
}

// user is a user of this host, with a home folder; the folder for temporary files is everybody's.
type user struct {
	t       *testing.T
	id      int
	home    string
	program string // that each user may run
	tmp     string
}

// run runs the program as this user.
func (u user) run(stdin string, env []string, args ...string) (out string, code int) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.program, args...)
	cmd.Dir = u.home
	cmd.Env = append([]string{"TFCLUSTER_TEST_MAIN=1", "HOME=" + u.home, "TMPDIR=" + u.tmp, "PATH=/usr/bin:/bin"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.id), Gid: uint32(u.id)}}
	cmd.Stdin = strings.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	_ = cmd.Run() // the exit code says it
	return said.String(), cmd.ProcessState.ExitCode()
}

// panel returns the answers to messages of this user's panel.
func (u user) panel(messages ...string) []map[string]any {
	u.t.Helper()
	out, code := u.run(strings.Join(messages, "\n")+"\n", []string{panelVar + "=1"})
	var answers []map[string]any
	for d := json.NewDecoder(strings.NewReader(out)); code == 0; {
		var a map[string]any
		if err := d.Decode(&a); err == io.EOF {
			break
		} else if err != nil {
			u.t.Fatalf("%v\n%s", err, out)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(messages) {
		u.t.Fatalf("exit code %d, %d answers to %d messages:\n%s", code, len(answers), len(messages), out)
	}
	return answers
}

// twoUsers returns two users of this host.
func twoUsers(t *testing.T) (a, b user) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("missing: the right to start processes as other users")
	}
	dir, err := os.MkdirTemp("", "tf") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	u := user{t: t, program: filepath.Join(dir, "tfcluster"), tmp: filepath.Join(dir, "tmp")}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	executable.Write(t, u.program, program)
	if err := os.Mkdir(u.tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	var both [2]user
	for i := range both {
		both[i] = u
		both[i].id, both[i].home = 54321+i, filepath.Join(dir, fmt.Sprint("home", i))
		if err := os.Mkdir(both[i].home, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(both[i].home, both[i].id, both[i].id); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, u.tmp: 0o777 | os.ModeSticky} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1]
}

// TestTwoUsers: users of one host see and reach their own clusters only, also of the same name, in commands
// and in the panel.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	a, b := twoUsers(t)
	start := strings.Fields("run --detach --workers 1 --framework none --name twin --worker-command")
	if out, code := a.run("", nil, append(start, "sleep 600")...); code != 0 || out != "twin\n" {
		t.Fatalf("exit code %d: %s", code, out)
	}
	defer func() {
		if out, code := a.run("", nil, "shutdown", "--force"); code != 0 {
			t.Errorf("shutdown: exit code %d: %s", code, out)
		}
	}()
	lives := func() bool {
		out, _ := a.run("", nil, "status", "--json")
		return strings.Contains(out, `"twin"`) && strings.Contains(out, `"running"`)
	}
	if !lives() {
		t.Fatal("the first user's cluster does not run")
	}
	if out, code := b.run("", nil, "status", "--all"); code != 0 || strings.Contains(out, "twin") {
		t.Errorf("status --all of the second user: exit code %d: %s", code, out)
	}
	for _, verb := range []string{"status", "logs", "stop", "reset", "reset --hard", "shutdown --force", "wait"} {
		if out, code := b.run("", nil, append(strings.Fields(verb), "-c", "twin")...); code == 0 ||
			!strings.Contains(out, "there is no cluster twin") {
			t.Errorf("%s of the second user: exit code %d: %s", verb, code, out)
		}
	}
	if out, code := b.run("", []string{"TFCLUSTER_HOME=" + filepath.Join(a.home, ".local/state/tfcluster")}, "shutdown",
		"--force", "-c", "twin"); code == 0 || !strings.Contains(out, "permission denied") {
		t.Errorf("in the first user's state folder: exit code %d: %s", code, out)
	}
	checkPanels(t, a, b)
	if !lives() {
		t.Error("the first user's cluster has ended")
	}
	if out, code := b.run("", nil, append(start, "sleep 600")...); code != 0 {
		t.Errorf("a cluster of the same name: exit code %d: %s", code, out)
	}
	if out, code := b.run("", nil, "shutdown", "--force", "-c", "twin"); code != 0 {
		t.Errorf("its shutdown: exit code %d: %s", code, out)
	}
	if !lives() {
		t.Error("the shutdown of a cluster of the same name has ended the first user's")
	}
}

// checkPanels: the first user's panel shows the cluster, the second user's neither shows nor reaches it.
func checkPanels(t *testing.T, a, b user) {
	t.Helper()
	if state := a.panel(`{"type":"show"}`)[0]; state["cluster"] == nil || len(state["clusters"].([]any)) != 1 {
		t.Errorf("the first user's panel shows %v", state)
	}
	answers := b.panel(
		`{"type":"show","cluster":"twin"}`,
		`{"type":"act","request":1,"verb":"shutdown","cluster":"twin","force":true}`,
		`{"type":"page","request":2,"cluster":"twin"}`,
		`{"type":"runs","request":3,"cluster":"twin"}`,
		`{"type":"board","request":4,"cluster":"twin"}`,
		`{"type":"lines_path","request":5,"cluster":"twin"}`,
		`{"type":"tensorboard","id":"twin"}`,
	)
	if state := answers[0]; state["cluster"] != nil || len(state["clusters"].([]any)) != 0 {
		t.Errorf("the second user's panel shows %v", state)
	}
	for _, answer := range answers[1:] {
		if answer["type"] != "error" {
			t.Errorf("the second user's panel gets %v", answer)
		}
	}
}
