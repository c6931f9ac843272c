package kerneltest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// act is the kind of a step.
type act string

const (
	onShell   act = "shell"     // sends a request on shell
	onControl act = "control"   // sends a request on control
	forge     act = "forged"    // sends a request with a wrong signature
	again     act = "again"     // sends an earlier message again, unchanged
	interrupt act = "interrupt" // interrupts the kernel
	pause     act = "pause"     // waits for some time
	settle    act = "settle"    // waits until all requests are answered
	awaitText act = "await"     // waits until a cell has printed something
)

// step is one action of a client.
type step struct {
	act     act
	msgType string
	content string        // as JSON
	id      int           // of the message, in the sequence; a message whose ID was used before is sent twice
	wait    time.Duration // of a pause

	malformed bool // neither kernel answers a malformed request for completion or inspection
}

// String returns the step in readable form.
func (s step) String() string {
	switch s.act {
	case pause:
		return fmt.Sprintf("pause %s", s.wait)
	case interrupt, settle:
		return string(s.act)
	case again, awaitText:
		return fmt.Sprintf("%s m%d", s.act, s.id)
	}
	return fmt.Sprintf("%s m%d %s %s", s.act, s.id, s.msgType, s.content)
}

// sequence is a list of steps generated from a seed.
type sequence struct {
	seed  uint64
	steps []step
	// loose: the sequence has an interrupt at a random moment, so ipykernel's behaviour is
	// random too, and only the guarantees for every client are checked.
	loose bool
}

// String lists the steps.
func (s sequence) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, loose %v:\n", s.seed, s.loose)
	for i, st := range s.steps {
		fmt.Fprintf(&b, "  %2d %s\n", i, st)
	}
	return b.String()
}

// maker generates one sequence.
type maker struct {
	*rand.Rand
	s      sequence
	ids    int
	failed bool // an error may occur that aborts later cells
	cells  []int
}

// newSequence returns the sequence of a seed.
func newSequence(seed uint64) sequence {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1)), s: sequence{seed: seed}} //nolint:gosec // reproducible
	m.s.loose = m.IntN(4) == 0
	for range 2 + m.IntN(9) {
		m.step()
	}
	return m.s
}

func (m *maker) add(s step) { m.s.steps = append(m.s.steps, s) }

// send adds a request with a new ID, sometimes with one that was used before.
func (m *maker) send(a act, msgType, content string) int {
	id := m.ids
	if a == onShell && len(m.cells) > 0 && m.IntN(20) == 0 { // on two channels their order would be random
		id = m.cells[m.IntN(len(m.cells))]
	} else {
		m.ids++
	}
	m.add(step{act: a, msgType: msgType, content: content, id: id})
	return id
}

func (m *maker) step() {
	switch n := m.IntN(100); {
	case n < 52:
		m.cell()
	case n < 72:
		m.request()
	case n < 76:
		m.malformed()
	case n < 79:
		m.send(onControl, pick(m, "kernel_info_request", "list_subshell_request", "nonsense_request"), `{}`)
	case n < 82:
		m.add(step{act: forge, msgType: "execute_request", content: `{"code":"print('forged')"}`, id: m.ids})
		m.ids++
	case n < 84:
		if len(m.cells) > 0 {
			m.add(step{act: again, id: m.cells[len(m.cells)-1]})
		}
	case n < 90:
		m.settle()
	case n < 94:
		if m.s.loose {
			m.add(step{act: pause, wait: time.Duration(m.IntN(10_000)) * time.Microsecond})
			m.add(step{act: interrupt})
			return
		}
		m.exactInterrupt()
	default:
		if !m.failed || m.s.loose { // otherwise it is random whether the error or the next cell is first
			m.add(step{act: pause, wait: time.Duration(m.IntN(4000)) * time.Microsecond})
		}
	}
}

func (m *maker) settle() {
	m.add(step{act: settle})
	m.failed = false
}

// exactInterrupt interrupts an idle kernel, or a cell that is certainly running.
func (m *maker) exactInterrupt() {
	m.settle()
	if m.IntN(2) == 0 {
		m.add(step{act: interrupt})
		return
	}
	id := m.ids
	m.ids++
	code := pick(m, `print('up', flush=True)\nimport time\ntime.sleep(60)`, `%toy lines 6000 10`)
	m.add(step{act: onShell, msgType: "execute_request", content: `{"code":"` + code + `","user_expressions":{}}`, id: id})
	m.add(step{act: awaitText, id: id})
	m.add(step{act: pause, wait: 5 * time.Millisecond}) // ipykernel may swallow an interrupt while it flushes text
	m.add(step{act: interrupt})
	m.settle()
}

// Cells of both kinds. The plain kernel has a magic with the same name and effect.
var (
	goodCells = []string{
		`1+1`, `x = 1`, `print('a')`, `print('a')\n'b'`, `import sys; print('e', file=sys.stderr)`,
		`import time; time.sleep(0.005)`, `'long ' * 1000`, ``, `# nothing`, `input('? ')`,
		`await __import__('asyncio').sleep(0.002)`, `%toy lines 0 0`, `%toy lines 2 0`, `%toy lines 2 2`, `%toy value v`,
	}
	// No open bracket: IPython would fail a later result of a cell that is not stored, because
	// it parses the last stored cell.
	badCells = []string{`1/0`, `1 +`, `raise SystemError('s')`, `%toy fail`, `import time; time.sleep(0.005); 1/0`}
)

func (m *maker) cell() {
	bad := m.IntN(5) == 0
	code := pick(m, goodCells...)
	if bad {
		code = pick(m, badCells...)
	}
	content := `{"code":"` + code + `","user_expressions":{},"allow_stdin":` + pick(m, "true", "true", "true", "false")
	stops := true
	switch m.IntN(8) {
	case 0:
		content += `,"silent":true`
		stops = false
	case 1:
		content += `,"store_history":false`
	case 2:
		content += `,"stop_on_error":false`
		stops = false
	}
	m.failed = m.failed || stops // input that is not allowed fails too
	m.cells = append(m.cells, m.send(onShell, "execute_request", content+"}"))
}

func (m *maker) request() {
	type request struct{ msgType, content string }
	r := pick(m,
		request{"complete_request", `{"code":"pri","cursor_pos":3}`},
		request{"complete_request", `{"code":"%toy f","cursor_pos":6}`},
		request{"inspect_request", `{"code":"print","cursor_pos":3,"detail_level":0}`},
		request{"inspect_request", `{"code":"%toy","cursor_pos":3,"detail_level":0}`},
		request{"is_complete_request", `{"code":"for i in x:"}`},
		request{"kernel_info_request", `{}`},
		request{"history_request", `{"hist_access_type":"tail","n":1,"raw":true,"output":false}`},
		request{"comm_info_request", `{}`},
		request{"comm_open", `{"comm_id":"c","target_name":"nobody","data":{}}`},
		request{"comm_msg", `{"comm_id":"nobody","data":{}}`},
		request{"comm_close", `{"comm_id":"nobody","data":{}}`},
		request{"nonsense_request", `{}`},
	)
	m.send(onShell, r.msgType, r.content)
}

func (m *maker) malformed() {
	content := pick(m, `{}`, `null`, `[1]`, `{"code":null}`, `{"code":5,"cursor_pos":"x"}`, `{"code":`,
		`{"code":"1","x":`+strings.Repeat("[", 1500)+strings.Repeat("]", 1500)+`}`, "{\"code\":\"'\xff'\"}")
	m.send(onShell, pick(m, "execute_request", "complete_request", "inspect_request", "history_request",
		"is_complete_request", "comm_open"), content)
	m.s.steps[len(m.s.steps)-1].malformed = true
}

func pick[T any](m *maker, from ...T) T { return from[m.IntN(len(from))] }
