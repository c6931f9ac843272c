package magics

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// record is an Output that keeps what it is given, as a transcript.
type record struct {
	interrupts chan struct{}

	mu     sync.Mutex
	text   strings.Builder   // guarded by mu
	bundle map[string]string // guarded by mu: the last plain text by display id
	order  []string          // guarded by mu
	html   []string          // guarded by mu
	mime   []map[string]any  // guarded by mu
	seen   chan string       // gets every piece of text, for tests that wait for one; may be nil
}

func newRecord() *record {
	return &record{interrupts: make(chan struct{}, 4), bundle: map[string]string{}, seen: make(chan string, 1000)}
}

func (r *record) add(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		r.text.WriteString(strings.TrimRight(kind+"| "+line, " ") + "\n")
	}
	select {
	case r.seen <- text:
	default:
	}
}

func (r *record) Stdout(text string) { r.add("out", text) }
func (r *record) Stderr(text string) { r.add("err", text) }

func (r *record) Display(id string, data, _ map[string]any) {
	r.mu.Lock()
	r.order = append(r.order, id)
	r.mu.Unlock()
	r.Update(id, data, nil)
}

func (r *record) Update(id string, data, _ map[string]any) {
	plain, _ := data["text/plain"].(string)
	markup, _ := data["text/html"].(string)
	r.mu.Lock()
	r.bundle[id] = plain
	r.html = append(r.html, markup)
	r.mime = append(r.mime, data)
	r.mu.Unlock()
	select {
	case r.seen <- plain:
	default:
	}
}

func (r *record) Interrupts() <-chan struct{} { return r.interrupts }

// settle writes what the displays came to.
func (r *record) settle() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.text.String()
	for _, id := range r.order {
		for line := range strings.SplitSeq(strings.TrimSuffix(r.bundle[id], "\n"), "\n") {
			out += strings.TrimRight("see| "+line, " ") + "\n"
		}
	}
	return out
}

// await waits until a piece of output holds text.
func (r *record) await(t testing.TB, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case got := <-r.seen:
			if strings.Contains(got, text) {
				return
			}
		case <-deadline:
			t.Fatalf("%q did not appear in:\n%s", text, r.settle())
		}
	}
}

// answer decodes what Python would write into reply.
func answer(reply, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, reply)
}

// receive gives a content to a reply.
func receive(reply any, name, text string) { reply.(bridge.Receiver).Receive(name, []byte(text)) }

// fakePython answers from maps.
type fakePython struct {
	names map[string]string
	exprs map[string]string
	calls []string
}

func (p *fakePython) Call(_ context.Context, fn string, args, reply any) error {
	p.calls = append(p.calls, fn)
	given, _ := args.(map[string]any)
	switch fn {
	case "expand":
		found := reply.(*map[string]*string)
		for _, n := range given["names"].([]string) {
			if v, ok := p.names[n]; ok {
				(*found)[n] = &v
			}
		}
	case "eval":
		v, ok := p.exprs[given["expr"].(string)]
		if !ok {
			return &bridge.PythonError{Name: "NameError", Text: "name 'x' is not defined"}
		}
		*reply.(*string) = v
	case "program":
		if given["name"] != "main_fun" {
			return &bridge.PythonError{Name: "UsageError", Text: fmt.Sprintf("the notebook has no name %s", given["name"])}
		}
		receive(reply, "pickle", "pickle")
		receive(reply, "modules", "zip")
		return answer(reply, map[string]any{
			"qualname": "main_fun",
			"captured": []any{map[string]any{"name": "x_train", "bytes": 120 << 20}},
		})
	case "args":
		receive(reply, "pickle", "args")
	case "modules":
		receive(reply, "modules", "zip")
	case "names":
		*reply.(*[]string) = []string{"main_fun", "other"}
	case "cwd":
		*reply.(*string) = "/work/dir"
	case "spark_session":
		is, found := p.names[given["name"].(string)]
		_, unusable, _ := strings.Cut(is, ": ")
		return json.Unmarshal(fmt.Appendf(nil, `{"found":%t,"host":"127.0.0.1","unusable":%q,"identity":%q}`, found, unusable,
			p.names["identity of "+given["name"].(string)]), reply)
	case "environ":
		found := reply.(*map[string]*string)
		for _, n := range given["names"].([]string) {
			if v, ok := p.names["env "+n]; ok {
				(*found)[n] = &v
			}
		}
	}
	return nil
}

// runCode runs a cell's code.
func runCode(ctx context.Context, s *Session, code string, out render.Output, py bridge.Python) (result.Value, error) {
	return s.Run(ctx, s.Read(code), out, py)
}
