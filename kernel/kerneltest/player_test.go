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

// answers are the messages of one kernel for one message ID.
type answers struct {
	replies   []string // type, status, error name, count
	status    []string // busy and idle, in order
	published []string // on IOPub, except streams
	stdout    string
	stderr    string
	asked     int // number of input requests
}

// String returns the answers on a few lines.
func (a *answers) String() string {
	return fmt.Sprintf("replies %q, status %q, said %q, stdout %q, stderr %q, asked %d", a.replies, a.status, a.published,
		a.stdout, a.stderr, a.asked)
}

// player plays sequences on one kernel.
type player struct {
	t         testing.TB
	name      string
	f         *kerneltest.Frontend
	signer    *wire.Signer
	dead      <-chan struct{} // closed when the kernel has ended; nil if it cannot end
	fence     string          // a cell to run after each sequence
	prefix    string          // prefix of the message IDs of the current sequence
	base      int             // count before the sequence
	published map[string]*answers
	sent      map[int][][]byte
	executes  map[string]int            // number of execute requests, by message ID
	due       map[string]map[string]int // number of expected replies to completion and inspection, by message ID and type

	interrupts int // interrupts sent in the sequence
}

// playLimit is the timeout for the answers to a sequence.
const playLimit = time.Minute

func newPlayer(t testing.TB, name string, f *kerneltest.Frontend, fence string, dead <-chan struct{}) *player {
	return &player{t: t, name: name, f: f, signer: wire.NewSigner(f.Conn.Key), fence: fence, dead: dead}
}

// play plays a sequence; it returns an error if the kernel does not complete it.
func (p *player) play(s sequence, n int) error {
	p.prefix = fmt.Sprintf("%d-%d-", s.seed, n)
	p.interrupts = 0
	p.published, p.sent, p.executes = map[string]*answers{}, map[int][][]byte{}, map[string]int{}
	p.due = map[string]map[string]int{}
	if err := p.settle(); err != nil {
		return fmt.Errorf("before the first step: %w", err)
	}
	p.published = map[string]*answers{}
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
		if kind, ok := strings.CutSuffix(s.msgType, "_request"); ok && !s.malformed &&
			(kind == "complete" || kind == "inspect") {
			if p.due[id] == nil {
				p.due[id] = map[string]int{}
			}
			p.due[id][kind+"_reply"]++
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

// count returns the number of replies of a type.
func (a *answers) count(msgType string) int {
	n := 0
	for _, r := range a.replies {
		if strings.HasPrefix(r, msgType) {
			n++
		}
	}
	return n
}

// fences are numbered across all sequences.
var fences = make(chan int, 1)

func init() { fences <- 0 }

// settle sends a silent cell and a request on control until the cell runs: an earlier error may
// abort it.
func (p *player) settle() error {
	for {
		n := <-fences
		fences <- n + 1
		cell, control := fmt.Sprint("fence-", n), fmt.Sprint("fence-control-", n)
		no := false
		p.f.SendRaw(p.signer.MakeRequest(cell, "execute_request",
			wire.ExecuteRequest{Code: p.fence, Silent: true, StopOnError: &no, UserExpressions: map[string]any{}}))
		p.f.SendRawControl(p.signer.MakeRequest(control, "kernel_info_request", map[string]any{}))
		ended := func(id string) bool {
			a := p.of(id)
			return len(a.replies) > 0 && slices.Contains(a.status, "idle")
		}
		if err := p.until(func() bool { return ended(cell) && ended(control) }, "the end of all requests"); err != nil {
			return fmt.Errorf("%w: %s has %v, %s has %v, all are %v", err, cell, p.of(cell), control, p.of(control), p.published)
		}
		if reply := p.of(cell).replies[0]; strings.HasPrefix(reply, "execute_reply ok") {
			count := 0
			_, err := fmt.Sscanf(reply, "execute_reply ok %d", &count)
			if len(p.sent) == 0 {
				p.base += count // relative to the previous base
			}
			p.awaitDue()
			return err
		}
	}
}

// awaitDue waits for the replies to completion and inspection, which the Interceptor answers beside the
// cells: an interrupt that follows must not meet one of them here and none in ipykernel.
func (p *player) awaitDue() {
	missing := func() bool {
		for id, kinds := range p.due {
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
	clear(p.due) // what is missing now was lost by an interrupt
}

func (p *player) of(id string) *answers {
	a := p.published[id]
	if a == nil {
		a = &answers{}
		p.published[id] = a
	}
	return a
}

// until reads messages until a condition holds.
func (p *player) until(done func() bool, what string) error {
	for end := time.Now().Add(playLimit); !done(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: %s did not arrive", p.name, what)
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

// take reads messages for d.
func (p *player) take(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.next(time.Until(end))
	}
}

// next reads one message, if one arrives within d.
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
	_ = m.Unmarshal(&c) // other contents are ignored
	kind := m.Header.MsgType
	line := strings.TrimSpace(kind + " " + c.Status + " " + c.EName)
	if c.Count != nil && c.Status != "aborted" {
		line = strings.TrimSpace(kind+" "+c.Status) + fmt.Sprintf(" %d ", *c.Count-p.base) + c.EName
	}
	switch {
	case channel == "stdin":
		a.asked++ // on a separate socket, so its order relative to IOPub is not defined
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
		a.published = append(a.published, line)
	}
}
