package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/internal/unixsock"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// contents is a reply that keeps the contents that it is given.
type contents map[string]string

// Receive implements Receiver.
func (c contents) Receive(name string, data []byte) { c[name] = string(data) }

// asking is a Runner whose commands call Python; a command that gives up its call makes a second one.
type asking struct {
	Runner
	giveUp chan struct{} // closed: before the answer
	got    contents
	err    error
}

// RunArgv implements Runner.
func (a *asking) RunArgv(ctx context.Context, _ []string, _ render.Output, py Python) (result.Value, error) {
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the call
		select {
		case <-a.giveUp:
			cancel()
		case <-call.Done():
		}
	}()
	a.got = contents{}
	if a.err = py.Call(call, "program", nil, &a.got); errors.Is(a.err, context.Canceled) {
		return nil, py.Call(ctx, "second", nil, nil)
	}
	return nil, a.err
}

// TestContents: contents come in files beside an answer. Their sizes are checked before they are read, and every file
// is closed. Contents beyond the limit end the connection, as a line does.
func TestContents(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	_, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	data, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	if _, err := data.WriteString("a program"); err != nil {
		t.Fatal(err)
	}
	const fault = "read the answer of the notebook's Python to program: "
	size := fault + "the file of a has 9 bytes instead of "
	one := []*os.File{data}
	beyond := fmt.Sprintf(`{"name":"b","bytes":%d}`, maxMessage-8)
	for _, c := range []struct {
		name, described string
		files           []*os.File
		err             string
		late            bool // nobody waits for the answer
	}{
		{name: "two", described: `{"name":"a","bytes":9},{"name":"b","bytes":9}`, files: []*os.File{data, data}},
		{name: "shorter", described: `{"name":"a","bytes":10}`, files: one, err: size + "10"},
		{name: "longer", described: `{"name":"a","bytes":8}`, files: one, err: size + "8"},
		{name: "missing", described: `{"name":"a","bytes":9}`, err: fault + "a line came with 0 descriptors instead of 1"},
		{name: "a pipe", described: `{"name":"a","bytes":9}`, files: []*os.File{write}, err: fault + "a is not in a file"},
		{name: "not described", files: one},
		{name: "beyond", described: `{"name":"a","bytes":9},` + beyond, files: one, err: ErrNoPython.Error()},
		{name: "below", described: `{"name":"a","bytes":-1}`, files: one, err: ErrNoPython.Error()},
		{name: "late", described: `{"name":"a","bytes":9}`, files: one, err: context.Canceled.Error(), late: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			runner := &asking{giveUp: make(chan struct{})}
			answered(t, runner, c.described, c.files, c.late)
			if (c.err == "") != (runner.err == nil) || !strings.Contains(fmt.Sprint(runner.err), c.err) {
				t.Errorf("the error is %v, want %q", runner.err, c.err)
			}
			if want := len(runner.got) == 0; want == (c.name == "two") {
				t.Errorf("received %v", runner.got)
			}
			for name, text := range runner.got {
				if text != "a program" {
					t.Errorf("%s is %q", name, text)
				}
			}
			open, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			for _, fd := range open {
				at, err := os.Readlink("/proc/self/fd/" + fd.Name())
				if err == nil && at == data.Name() && fd.Name() != strconv.Itoa(int(data.Fd())) {
					t.Errorf("descriptor %s of %s is open", fd.Name(), at)
				}
			}
		})
	}
}

// answered runs a command of a gate, whose call is answered with these contents and files, until the gate is closed.
func answered(t *testing.T, runner *asking, described string, files []*os.File, late bool) {
	t.Helper()
	g, err := OpenGate(t.Context(), runner, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	conn, err := net.Dial("unix", g.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(`{"op":"verb"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var call struct{ ID int }
	if err := json.Unmarshal(line, &call); err != nil {
		t.Fatal(err)
	}
	if late {
		close(runner.giveUp)
		if _, err := in.ReadBytes('\n'); err != nil { // the second call
			t.Fatal(err)
		}
	}
	reply := fmt.Appendf(nil, `{"op":"reply","id":%d,"value":{},"contents":[%s]}`+"\n", call.ID, described)
	if _, err := unixsock.Pass(conn.(*net.UnixConn), reply, files...); err != nil {
		t.Fatal(err)
	}
	if late { // it is answered when the first answer was read
		if _, err := fmt.Fprintf(conn, `{"op":"reply","id":%d}`+"\n", call.ID+1); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = in.ReadBytes('\n') // the command's end, also that of the connection
}
