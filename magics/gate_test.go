package magics

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/session"
)

// shim is the Python side of a connection.
type shim struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner
}

func dialGate(t *testing.T, g *bridge.Gate) *shim {
	t.Helper()
	conn, err := net.Dial("unix", g.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(conn)
	in.Buffer(nil, 1<<20)
	return &shim{t, conn, in}
}

func (s *shim) send(message string) {
	s.t.Helper()
	if _, err := io.WriteString(s.conn, message+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// next is the next message, nil at the connection's end.
func (s *shim) next() map[string]any {
	s.t.Helper()
	if !s.in.Scan() {
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal(s.in.Bytes(), &m); err != nil {
		s.t.Fatalf("%s: %v", s.in.Bytes(), err)
	}
	return m
}

// until reads messages up to one of the given op.
func (s *shim) until(op string) (m map[string]any, before string) {
	s.t.Helper()
	for {
		m := s.next()
		if m == nil {
			s.t.Fatalf("the gate closed before %q, after %q", op, before)
		}
		if m["op"] == op {
			return m, before
		}
		text, _ := m["text"].(string)
		before += text
	}
}

func openTestGate(t *testing.T) (*bridge.Gate, *fakeDrivers, *Session) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	g, err := bridge.OpenGate(t.Context(), s, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, d, s
}

// TestGateCommand: a magic inside Python, its calls answered in place, its value.
func TestGateCommand(t *testing.T) {
	g, d, _ := openTestGate(t)
	fi, err := os.Stat(g.Path())
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the socket is %v, %v", fi.Mode(), err)
	}
	c := dialGate(t, g)
	c.send(`{"op":"magic","line":"reserve --workers $n","cell":null}`)
	call, _ := c.until("call")
	if call["fn"] != "expand" {
		t.Fatalf("asks %v", call)
	}
	c.send(`{"op":"reply","id":1,"value":{"n":"3"}}`)
	call, _ = c.until("call")
	if call["fn"] != "cwd" {
		t.Fatalf("asks %v", call)
	}
	c.send(`{"op":"reply","id":2,"value":"/work/dir"}`)
	done, before := c.until("done")
	value, ok := done["value"].(map[string]any)
	if !ok || done["error"] != nil || value["type"] != "Cluster" || value["executors"] != 3.0 ||
		!strings.Contains(before, "3 executors") {
		t.Errorf("ends with %v after %q", done, before)
	}
	if m := c.next(); m != nil {
		t.Errorf("after done comes %v", m)
	}
	if d.get("local-1") == nil {
		t.Error("no cluster was made")
	}

	c = dialGate(t, g)
	c.send(`{"op":"verb","argv":["start","$n"]}`)
	done, _ = c.until("done")
	report, ok := done["error"].(map[string]any)
	if !ok || report["ename"] != "UsageError" || report["usage"] != true {
		t.Errorf("start $n ends with %v", done)
	}
}

// TestGateComplete: completion in a plain kernel knows the notebook's names.
func TestGateComplete(t *testing.T) {
	g, _, _ := openTestGate(t)
	c := dialGate(t, g)
	c.send(`{"op":"complete","code":"%tfcluster start ma","cursor":19}`)
	call, _ := c.until("call")
	for call["fn"] != "names" {
		c.send(fmt.Sprintf(`{"op":"reply","id":%v,"ename":"OSError","error":"no"}`, call["id"]))
		call, _ = c.until("call")
	}
	c.send(fmt.Sprintf(`{"op":"reply","id":%v,"value":["main_fun","other"]}`, call["id"]))
	done, _ := c.until("done")
	if value, ok := done["value"].(map[string]any); !ok || !strings.Contains(fmt.Sprint(value["matches"]), "main_fun") {
		t.Errorf("offers %v", done)
	}
}

// TestGateInterrupt: Python hands interrupts on and reads until the end.
func TestGateInterrupt(t *testing.T) {
	g, d, s := openTestGate(t)
	if _, err := s.RunArgv(t.Context(), []string{"reserve"}, newRecord(), &fakePython{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RunArgv(t.Context(), []string{"start", "main_fun"}, newRecord(), &fakePython{}); err != nil {
		t.Fatal(err)
	}
	f := d.get("local-1")
	f.mu.Lock()
	f.hang = true
	f.mu.Unlock()
	c := dialGate(t, g)
	c.send(`{"op":"verb","argv":["wait"]}`)
	c.send(`{"op":"interrupt"}`)
	c.send(`{"op":"interrupt"}`)
	done, before := c.until("done")
	report, ok := done["error"].(map[string]any)
	if !ok || report["ename"] != "KeyboardInterrupt" || !strings.Contains(before, "killing the run") {
		t.Errorf("ends with %v after %q", done, before)
	}
}

// TestGateGone: a Python that dies in a wait ends the wait and nothing else.
func TestGateGone(t *testing.T) {
	g, d, s := openTestGate(t)
	for _, argv := range [][]string{{"reserve"}, {"start", "main_fun"}} {
		if _, err := s.RunArgv(t.Context(), argv, newRecord(), &fakePython{}); err != nil {
			t.Fatal(err)
		}
	}
	f := d.get("local-1")
	f.mu.Lock()
	f.hang = true
	f.mu.Unlock()
	c := dialGate(t, g)
	c.send(`{"op":"verb","argv":["logs","-f"]}`)
	_ = c.conn.Close()
	g.Close() // waits for the command
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.stops)+len(f.shutdowns) != 0 {
		t.Errorf("stops %v, shutdowns %v", f.stops, f.shutdowns)
	}
}

// TestGateObjects: Go asks the shim's thread; a dead one is said.
func TestGateObjects(t *testing.T) {
	g, _, _ := openTestGate(t)
	c := dialGate(t, g)
	c.send(`{"op":"objects"}`)
	go func() {
		for m := c.next(); m != nil; m = c.next() {
			switch m["fn"] {
			case "names":
				c.send(`{"op":"reply","id":` + string(mustMarshal(m["id"])) + `,"value":["a","b"]}`)
			case "eval":
				c.send(`{"op":"reply","id":` + string(mustMarshal(m["id"])) +
					`,"ename":"NameError","error":"name 'x' is not defined"}`)
			case "spark_lend":
				c.send(`{"op":"reply","id":` + string(mustMarshal(m["id"])) + `}`)
			case "cwd":
				_ = c.conn.Close()
				return
			}
		}
	}()
	var names []string
	if err := g.Call(t.Context(), "names", nil, &names); err != nil || len(names) != 2 {
		t.Errorf("names are %v, %v", names, err)
	}
	var pe *bridge.PythonError
	if err := g.Call(t.Context(), "eval", nil, &names); !errors.As(err, &pe) || pe.Name != "NameError" {
		t.Errorf("eval gives %v", err)
	}
	if err := g.Call(t.Context(), "spark_lend", nil, nil); err != nil {
		t.Errorf("a call whose answer is nothing gives %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := g.Call(ctx, "busy", nil, &names); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an answer that does not come gives %v", err)
	}
	if err := g.Call(t.Context(), "cwd", nil, &names); !errors.Is(err, bridge.ErrNoPython) {
		t.Errorf("a Python that dies gives %v", err)
	}
	if err := g.Call(t.Context(), "cwd", nil, &names); !errors.Is(err, bridge.ErrNoPython) {
		t.Errorf("a dead Python gives %v", err)
	}
}

// TestGateNonsense: what is no message closes its own connection only.
func TestGateNonsense(t *testing.T) {
	g, _, _ := openTestGate(t)
	for _, nonsense := range []string{"{", "null", "[]", `{"op":7}`, `{"op":"reboot"}`, strings.Repeat("[", 100_000)} {
		c := dialGate(t, g)
		c.send(nonsense)
		if w, ok := c.conn.(*net.UnixConn); ok {
			_ = w.CloseWrite() // the fuzz of an unfinished line
		}
		if m := c.next(); m != nil {
			t.Errorf("%.20q is answered by %v", nonsense, m)
		}
	}
	c := dialGate(t, g)
	c.send(`{"op":"verb","argv":["help"]}`)
	if done, _ := c.until("done"); done["error"] != nil {
		t.Errorf("help ends with %v", done)
	}
}

// TestGateSweep: what killed gates left behind goes, what lives stays.
func TestGateSweep(t *testing.T) {
	g, _, _ := openTestGate(t)
	dead := filepath.Join(filepath.Dir(g.Path()), "gate-DEAD.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	old := time.Now().Add(-time.Hour)
	for _, path := range []string{dead, g.Path()} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if other, err := bridge.OpenGate(t.Context(), nil, nil); err != nil { // which sweeps
		t.Error(err)
	} else {
		other.Close()
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead gate's socket: %v", err)
	}
	if _, err := os.Stat(g.Path()); err != nil {
		t.Errorf("the live gate's socket: %v", err)
	}
}

// TestGateMain: the engine of a plain ipykernel says where it is and ends with it.
func TestGateMain(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	ended := make(chan error, 1)
	go func() {
		ended <- GateMain(t.Context(), []string{"--owner", "kernel-9.json", "--python", "python3"},
			session.Options{Engines: engines(), Connector: newFakeDrivers(t)}, theirs)
		_ = theirs.Close()
	}()
	var word map[string]string
	if err := json.NewDecoder(ours).Decode(&word); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(word["gate"]); err != nil {
		t.Error(err)
	}
	_ = ours.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the gate outlives its kernel")
	}
	if _, err := os.Stat(word["gate"]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
