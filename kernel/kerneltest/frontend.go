package kerneltest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	zmq "github.com/go-zeromq/zmq4"

	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// patience is the timeout for an expected message. Tests never assert durations.
const patience = 90 * time.Second

// Frontend is a client of a kernel: it has real sockets of another implementation of ZeroMQ,
// and receiving methods named after the protocol. A test that leaves messages on IOPub or shell
// unread fails.
type Frontend struct {
	t      testing.TB
	Conn   *kernel.Connection
	signer *wire.Signer

	shell, control, stdin, iopub *inbox
}

// inbox is one socket and the messages received on it.
type inbox struct {
	name string
	sock zmq.Socket
	in   chan *wire.Message
}

// NewConnection writes a connection file on free ports and returns its path.
func NewConnection(t testing.TB) (string, *kernel.Connection) {
	t.Helper()
	c := &kernel.Connection{IP: "127.0.0.1", Transport: "tcp", Key: wire.NewID(), Scheme: "hmac-sha256", KernelName: "toy"}
	var listeners []net.Listener
	for _, port := range []*int{&c.ShellPort, &c.IOPubPort, &c.StdinPort, &c.ControlPort, &c.HBPort} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ln)
		*port = ln.Addr().(*net.TCPAddr).Port
	}
	for _, ln := range listeners {
		_ = ln.Close() // the kernel binds the port next
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kernel-toy.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, c
}

// Connect returns a client with a new identity, after it has received IOPub's welcome.
func Connect(t testing.TB, c *kernel.Connection) *Frontend {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &Frontend{t: t, Conn: c, signer: wire.NewSigner(c.Key)}
	id := zmq.WithID(zmq.SocketIdentity("front-" + wire.NewID()))
	retry := []zmq.Option{id, zmq.WithDialerRetry(10 * time.Millisecond), zmq.WithDialerMaxRetries(1000)}
	var work sync.WaitGroup
	open := func(name string, s zmq.Socket, port int) *inbox {
		if err := s.Dial(fmt.Sprintf("tcp://%s:%d", c.IP, port)); err != nil {
			t.Fatalf("dial %s: %v", name, err)
		}
		b := &inbox{name: name, sock: s, in: make(chan *wire.Message, 1<<16)}
		work.Go(func() { b.read(t) })
		return b
	}
	f.shell = open("shell", zmq.NewDealer(ctx, retry...), c.ShellPort)
	f.control = open("control", zmq.NewDealer(ctx, retry...), c.ControlPort)
	f.stdin = open("stdin", zmq.NewDealer(ctx, retry...), c.StdinPort)
	f.iopub = open("iopub", zmq.NewSub(ctx, retry...), c.IOPubPort)
	t.Cleanup(func() {
		cancel()
		for _, b := range []*inbox{f.shell, f.control, f.stdin, f.iopub} {
			_ = b.sock.Close() // the kernel may have closed it
		}
		work.Wait()
	})
	if err := f.iopub.sock.SetOption(zmq.OptionSubscribe, ""); err != nil {
		t.Fatal(err)
	}
	f.Pub("iopub_welcome", "")
	return f
}

func (b *inbox) read(t testing.TB) {
	for {
		m, err := b.sock.Recv()
		if err != nil {
			return
		}
		w, err := wire.Decode(m.Frames)
		if err != nil {
			t.Logf("%s: %v", b.name, err) // an interrupt may truncate a message of ipykernel
			continue
		}
		b.in <- w
	}
}

// Ready requests kernel_info, which is answered when Python is running, and discards earlier
// messages.
func (f *Frontend) Ready() *Frontend {
	f.t.Helper()
	id := f.Send("kernel_info_request", map[string]any{})
	f.Reply("kernel_info_reply", id)
	f.Until(id)
	f.Drain()
	return f
}

// Send sends a request on shell and returns its ID.
func (f *Frontend) Send(msgType string, content any) string {
	f.t.Helper()
	return f.send(f.shell, msgType, content)
}

// SendControl sends a request on control.
func (f *Frontend) SendControl(msgType string, content any) string {
	f.t.Helper()
	return f.send(f.control, msgType, content)
}

// SendRaw sends frames on shell unchanged.
func (f *Frontend) SendRaw(frames [][]byte) {
	f.t.Helper()
	f.sendRaw(f.shell, frames)
}

// SendSubshell sends a request to a subshell (JEP 91).
func (f *Frontend) SendSubshell(subshell, msgType string, content any) string {
	f.t.Helper()
	id := wire.NewID()
	f.SendRaw(f.signer.MakeSubshellRequest(id, subshell, msgType, content))
	return id
}

func (f *Frontend) send(b *inbox, msgType string, content any) string {
	f.t.Helper()
	id := wire.NewID()
	if err := b.sock.SendMulti(zmq.NewMsgFrom(f.signer.MakeRequest(id, msgType, content)...)); err != nil {
		f.t.Fatalf("send %s: %v", msgType, err)
	}
	return id
}

// Execute sends a cell as a notebook does.
func (f *Frontend) Execute(code string) string {
	f.t.Helper()
	return f.Send("execute_request", wire.ExecuteRequest{Code: code, UserExpressions: map[string]any{}, AllowStdin: true})
}

// Input answers the next input_request of a request and returns its prompt.
func (f *Frontend) Input(parent, value string) string {
	f.t.Helper()
	m := f.next(f.stdin, "input_request", parent)
	var c struct {
		Prompt string `json:"prompt"`
	}
	f.content(m, &c)
	f.send(f.stdin, "input_reply", map[string]any{"value": value})
	return c.Prompt
}

// next returns the socket's next message, which must have the given type and, unless it is "",
// the given parent.
func (f *Frontend) next(b *inbox, msgType, parent string) *wire.Message {
	f.t.Helper()
	m := f.any(b, msgType)
	if m.Header.MsgType != msgType || parent != "" && m.ParentID() != parent {
		f.t.Fatalf("%s: got %s of %.8s %.300s, want %s of %.8s", b.name, m.Header.MsgType, m.ParentID(), m.Content(),
			msgType, parent)
	}
	return m
}

func (f *Frontend) any(b *inbox, want string) *wire.Message {
	f.t.Helper()
	select {
	case m := <-b.in:
		if err := f.signer.Verify(m); err != nil {
			f.t.Fatalf("%s: %s: %v", b.name, m.Header.MsgType, err)
		}
		return m
	case <-time.After(patience):
		f.t.Fatalf("%s: no message, want %s", b.name, want)
		return nil
	}
}

func (f *Frontend) content(m *wire.Message, v any) {
	f.t.Helper()
	if err := m.Unmarshal(v); err != nil {
		f.t.Fatal(err)
	}
}

// Pub returns the next message on IOPub.
func (f *Frontend) Pub(msgType, parent string) *wire.Message {
	f.t.Helper()
	return f.next(f.iopub, msgType, parent)
}

// Status reads the next message on IOPub, which must be this status of the request.
func (f *Frontend) Status(parent, state string) {
	f.t.Helper()
	var s wire.Status
	m := f.Pub("status", parent)
	f.content(m, &s)
	if s.ExecutionState != state {
		f.t.Fatalf("status %s of %.8s, want %s", s.ExecutionState, parent, state)
	}
}

// Begin reads a cell's busy and execute_input and returns its count.
func (f *Frontend) Begin(parent string) int {
	f.t.Helper()
	f.Status(parent, "busy")
	var in wire.ExecuteInput
	f.content(f.Pub("execute_input", parent), &in)
	return in.ExecutionCount
}

// Stream reads stream messages of a cell until their text is want.
func (f *Frontend) Stream(parent, name, want string) {
	f.t.Helper()
	got := ""
	for got != want {
		var s wire.Stream
		f.content(f.Pub("stream", parent), &s)
		got += s.Text
		if s.Name != name || !strings.HasPrefix(want, got) {
			f.t.Fatalf("%s of %.8s: %q, want %s %q", s.Name, parent, got, name, want)
		}
	}
}

// Result reads an execute_result and returns its count and text.
func (f *Frontend) Result(parent string) (int, string) {
	f.t.Helper()
	var r wire.ExecuteResult
	f.content(f.Pub("execute_result", parent), &r)
	text, _ := r.Data["text/plain"].(string)
	return r.ExecutionCount, text
}

// Reply returns the next reply on shell.
func (f *Frontend) Reply(msgType, parent string) *wire.Message {
	f.t.Helper()
	return f.next(f.shell, msgType, parent)
}

// ReplyControl returns the next reply on control.
func (f *Frontend) ReplyControl(msgType, parent string) *wire.Message {
	f.t.Helper()
	return f.next(f.control, msgType, parent)
}

// ExecuteReply reads an execute_reply.
func (f *Frontend) ExecuteReply(parent string) wire.ExecuteReply {
	f.t.Helper()
	var r wire.ExecuteReply
	f.content(f.Reply("execute_reply", parent), &r)
	return r
}

// Executed reads an execute_reply with this status.
func (f *Frontend) Executed(parent, status string) wire.ExecuteReply {
	f.t.Helper()
	r := f.ExecuteReply(parent)
	if r.Status != status {
		f.t.Fatalf("execute_reply %+v, want %s", r, status)
	}
	return r
}

// Until reads IOPub up to the idle of a request and returns the messages of the request.
func (f *Frontend) Until(parent string) []*wire.Message {
	f.t.Helper()
	var got []*wire.Message
	for {
		m := f.any(f.iopub, "idle of "+parent)
		if m.ParentID() != parent {
			continue
		}
		var s wire.Status
		if m.Header.MsgType == "status" {
			f.content(m, &s)
			if s.ExecutionState == "idle" {
				return got
			}
		}
		got = append(got, m)
	}
}

// Run executes a cell and returns its reply and its text on both streams.
func (f *Frontend) Run(code string) (wire.ExecuteReply, string) {
	f.t.Helper()
	id := f.Execute(code)
	return f.ExecuteReply(id), f.Text(f.Until(id))
}

// Text returns the stream text among messages.
func (f *Frontend) Text(messages []*wire.Message) string {
	f.t.Helper()
	var b strings.Builder
	for _, m := range messages {
		if m.Header.MsgType == "stream" {
			var s wire.Stream
			f.content(m, &s)
			b.WriteString(s.Text)
		}
	}
	return b.String()
}

// Drain discards received messages, such as a child's starting status.
func (f *Frontend) Drain() {
	for _, b := range []*inbox{f.shell, f.control, f.stdin, f.iopub} {
		for len(b.in) > 0 {
			<-b.in
		}
	}
}

// NothingLeft fails the test if a message was not read. A round trip ensures that all messages
// have arrived.
func (f *Frontend) NothingLeft() {
	f.t.Helper()
	id := f.Send("comm_info_request", map[string]any{})
	f.Status(id, "busy")
	f.Status(id, "idle")
	f.Reply("comm_info_reply", id)
	for _, b := range []*inbox{f.shell, f.control, f.stdin, f.iopub} {
		for len(b.in) > 0 {
			m := <-b.in
			f.t.Errorf("left on %s: %s of %.8s %.200s", b.name, m.Header.MsgType, m.ParentID(), m.Content())
		}
	}
}

// SendRawControl sends frames on control unchanged.
func (f *Frontend) SendRawControl(frames [][]byte) {
	f.t.Helper()
	f.sendRaw(f.control, frames)
}

// SendRawStdin sends frames on stdin unchanged.
func (f *Frontend) SendRawStdin(frames [][]byte) {
	f.t.Helper()
	f.sendRaw(f.stdin, frames)
}

func (f *Frontend) sendRaw(b *inbox, frames [][]byte) {
	f.t.Helper()
	if err := b.sock.SendMulti(zmq.NewMsgFrom(frames...)); err != nil {
		f.t.Fatalf("send on %s: %v", b.name, err)
	}
}

// Next returns the next message of any channel and the channel's name; nil if there is none
// within d.
func (f *Frontend) Next(d time.Duration) (channel string, m *wire.Message) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case m = <-f.iopub.in:
		return f.iopub.name, m
	case m = <-f.shell.in:
		return f.shell.name, m
	case m = <-f.control.in:
		return f.control.name, m
	case m = <-f.stdin.in:
		return f.stdin.name, m
	case <-timer.C:
		return "", nil
	}
}
