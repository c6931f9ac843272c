package kerneltest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// answers is what one kernel said to the messages of one id.
type answers struct {
	replies []string // type, status, name of the error, count
	status  []string // busy and idle, as they came
	said    []string // on IOPub, but streams
	stdout  string
	stderr  string
	asked   int // how often for input
}

// String is the answers on a few lines.
func (a *answers) String() string {
	return fmt.Sprintf("replies %q, status %q, said %q, stdout %q, stderr %q, asked %d", a.replies, a.status, a.said, a.stdout, a.stderr, a.asked)
}

// player plays sequences on one kernel.
type player struct {
	t        testing.TB
	name     string
	f        *kerneltest.Frontend
	signer   *wire.Signer
	dead     <-chan struct{} // closed when the kernel is gone; nil for one that goes on
	fence    string          // a cell that comes behind everything
	prefix   string          // of the ids of the sequence that is played
	base     int             // the count before it
	said     map[string]*answers
	sent     map[int][][]byte
	executes map[string]int            // how many were sent under an id
	beside   map[string]map[string]int // replies to completion and inspection that are due, by id and type

	interrupts int // sent in the sequence
}

// playLimit is how long a kernel may take to answer what it was sent.
const playLimit = 20 * time.Second

func newPlayer(t testing.TB, name string, f *kerneltest.Frontend, fence string, dead <-chan struct{}) *player {
	return &player{t: t, name: name, f: f, signer: wire.NewSigner(f.Conn.Key), fence: fence, dead: dead}
}

// play plays a sequence; it returns why the kernel did not get through it.
func (p *player) play(s sequence, n int) error {
	p.prefix = fmt.Sprintf("%d-%d-", s.seed, n)
	p.interrupts = 0
	p.said, p.sent, p.executes = map[string]*answers{}, map[int][][]byte{}, map[string]int{}
	p.beside = map[string]map[string]int{}
	if err := p.settle(); err != nil {
		return fmt.Errorf("before the first step: %w", err)
	}
	p.said = map[string]*answers{}
	for i, st := range s.steps {
		if err := p.step(st); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return p.settle()
}

func (p *player) step(s step) error {
	id := fmt.Sprint(p.prefix, s.id)
	switch s.act {
	case onShell, onControl:
		frames := p.signer.MakeRequest(id, s.msgType, json.RawMessage(s.content))
		p.sent[s.id] = frames
		if s.msgType == "execute_request" {
			p.executes[id]++
		}
		if kind, ok := strings.CutSuffix(s.msgType, "_request"); ok && (kind == "complete" || kind == "inspect") {
			if p.beside[id] == nil {
				p.beside[id] = map[string]int{}
			}
			p.beside[id][kind+"_reply"]++
		}
		if s.act == onControl {
			p.f.SendRawControl(frames)
		} else {
			p.f.SendRaw(frames)
		}
	case forge:
		p.f.SendRaw(wire.NewSigner("no key").MakeRequest(id, s.msgType, json.RawMessage(s.content)))
	case again:
		if frames := p.sent[s.id]; frames != nil {
			p.f.SendRaw(frames)
		}
	case interrupt:
		id, sent := p.prefix+"interrupt", p.interrupts+1
		p.interrupts = sent
		p.f.SendRawControl(p.signer.MakeRequest(id, "interrupt_request", map[string]any{}))
		return p.until(func() bool { return p.of(id).count("interrupt_reply") == sent }, "the interrupt's reply")
	case pause:
		p.take(s.wait)
	case settle:
		return p.settle()
	case awaitText:
		return p.until(func() bool { return p.of(id).stdout != "" || len(p.of(id).replies) > 0 }, "output of "+id)
	}
	return nil
}

// count is how many replies of a type there are.
func (a *answers) count(msgType string) int {
	n := 0
	for _, r := range a.replies {
		if strings.HasPrefix(r, msgType) {
			n++
		}
	}
	return n
}

// fences are told apart over all sequences.
var fences = make(chan int, 1)

func init() { fences <- 0 }

// settle sends a silent cell, and a request on control, until the first runs: an error before may abort it.
func (p *player) settle() error {
	for {
		n := <-fences
		fences <- n + 1
		cell, control := fmt.Sprint("fence-", n), fmt.Sprint("fence-control-", n)
		no := false
		p.f.SendRaw(p.signer.MakeRequest(cell, "execute_request", wire.ExecuteRequest{Code: p.fence, Silent: true, StopOnError: &no, UserExpressions: map[string]any{}}))
		p.f.SendRawControl(p.signer.MakeRequest(control, "kernel_info_request", map[string]any{}))
		ended := func(id string) bool {
			a := p.of(id)
			return len(a.replies) > 0 && slices.Contains(a.status, "idle")
		}
		if err := p.until(func() bool { return ended(cell) && ended(control) }, "the end of what was sent"); err != nil {
			return err
		}
		if reply := p.of(cell).replies[0]; strings.HasPrefix(reply, "execute_reply ok") {
			count := 0
			_, err := fmt.Sscanf(reply, "execute_reply ok %d", &count)
			if len(p.sent) == 0 {
				p.base += count // relative to the base so far
			}
			p.awaitBeside()
			return err
		}
	}
}

// awaitBeside waits for the replies to completion and inspection, which the Interceptor answers beside the
// cells: an interrupt that follows must not meet one of them here and none in ipykernel.
func (p *player) awaitBeside() {
	missing := func() bool {
		for id, kinds := range p.beside {
			for kind, n := range kinds {
				if p.of(id).count(kind) < n {
					return true
				}
			}
		}
		return false
	}
	for end := time.Now().Add(late); missing() && time.Now().Before(end); {
		p.next(10 * time.Millisecond)
	}
	clear(p.beside) // what is missing now was lost by an interrupt
}

func (p *player) of(id string) *answers {
	a := p.said[id]
	if a == nil {
		a = &answers{}
		p.said[id] = a
	}
	return a
}

// until takes what comes until a condition holds.
func (p *player) until(done func() bool, what string) error {
	for end := time.Now().Add(playLimit); !done(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: %s did not come", p.name, what)
		}
		select {
		case <-p.dead:
			return fmt.Errorf("%s ended", p.name)
		default:
			p.next(time.Second)
		}
	}
	return nil
}

// take takes what comes within d.
func (p *player) take(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.next(time.Until(end))
	}
}

// next takes one message, if one comes within d.
func (p *player) next(d time.Duration) {
	channel, m := p.f.Next(d)
	if m == nil {
		return
	}
	a := p.of(m.ParentID())
	var c struct {
		State  string `json:"execution_state"`
		Count  *int   `json:"execution_count"`
		Status string `json:"status"`
		EName  string `json:"ename"`
		Name   string `json:"name"`
		Text   string `json:"text"`
	}
	_ = m.Unmarshal(&c) // other contents are not looked at
	kind := m.Header.MsgType
	line := strings.TrimSpace(kind + " " + c.Status + " " + c.EName)
	if c.Count != nil && c.Status != "aborted" {
		line = strings.TrimSpace(kind+" "+c.Status) + fmt.Sprintf(" %d ", *c.Count-p.base) + c.EName
	}
	switch {
	case channel == "stdin":
		a.asked++ // on a socket of its own, so before or behind what is said on IOPub
		p.f.SendRawStdin(p.signer.MakeRequest(wire.NewID(), "input_reply", map[string]any{"value": "v"}))
	case channel != "iopub":
		a.replies = append(a.replies, line)
	case kind == "status":
		a.status = append(a.status, c.State)
	case kind == "stream" && c.Name == "stderr":
		a.stderr += c.Text
	case kind == "stream":
		a.stdout += c.Text
	default:
		a.said = append(a.said, line)
	}
}
