package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

func frames(parts ...string) [][]byte {
	out := make([][]byte, len(parts))
	for i, p := range parts {
		out[i] = []byte(p)
	}
	return out
}

// Ensure a message made can be read, and is verified once but not a second time.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	made := wire.NewSigner("secret").Make(frames("client"), "stream", []byte(`{"msg_id":"p1"}`),
		wire.Stream{Name: "stdout", Text: "a<b\n"})
	s := wire.NewSigner("secret")
	m, err := wire.Decode(made)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(m); err != nil {
		t.Error(err)
	}
	if err := s.Verify(m); !errors.Is(err, wire.ErrReplayed) {
		t.Errorf("again: %v", err)
	}
	if m.Header.MsgType != "stream" || m.ParentID() != "p1" || string(m.Identities()[0]) != "client" ||
		string(m.Content()) != `{"name":"stdout","text":"a<b\n"}` {
		t.Errorf("read back %+v", m)
	}
	if kind, parent, ok := wire.Peek(made); kind != "stream" || parent != "p1" || !ok {
		t.Errorf("peek %q %q %v", kind, parent, ok)
	}
}

// Ensure a change in any signed part is detected.
func TestTampered(t *testing.T) {
	t.Parallel()
	s := wire.NewSigner("secret")
	for i := range 4 {
		made := s.Make(nil, "status", []byte("{}"), wire.Status{ExecutionState: "idle"})
		part := 2 + i
		made[part] = append(bytes.Clone(made[part]), ' ')
		m, err := wire.Decode(made)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(m); !errors.Is(err, wire.ErrBadSignature) {
			t.Errorf("part %d: %v", i, err)
		}
	}
}

// Ensure each malformed message returns its specific error.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	const header = `{"msg_id":"1","msg_type":"x"}`
	for _, tt := range []struct {
		name string
		in   [][]byte
		want error
	}{
		{"nothing", nil, wire.ErrNoDelimiter},
		{"no delimiter", frames("a", "b"), wire.ErrNoDelimiter},
		{"short", frames("<IDS|MSG>", "", header, "{}", "{}"), wire.ErrShort},
		{"header is no JSON", frames("<IDS|MSG>", "", "{", "{}", "{}", "{}"), wire.ErrBadHeader},
		{"header is a list", frames("<IDS|MSG>", "", "[]", "{}", "{}", "{}"), wire.ErrBadHeader},
		{"no id", frames("<IDS|MSG>", "", `{"msg_type":"x"}`, "{}", "{}", "{}"), wire.ErrBadHeader},
		{"whole", frames("<IDS|MSG>", "", header, "{}", "{}", "{}"), nil},
	} {
		if _, err := wire.Decode(tt.in); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// Ensure the memory of signatures is limited and contains the latest messages.
func TestReplayMemory(t *testing.T) {
	t.Parallel()
	s := wire.NewSigner("secret")
	var last []*wire.Message
	for range 70_000 {
		m, err := wire.Decode(s.Make(nil, "x", nil, struct{}{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(m); err != nil {
			t.Fatal(err)
		}
		last = append(last, m)
	}
	for _, m := range last[len(last)-60_000:] {
		if err := s.Verify(m); !errors.Is(err, wire.ErrReplayed) {
			t.Fatal(err)
		}
	}
}

// Ensure the defaults of members that a request omits.
func TestExecuteDefaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in            string
		stores, stops bool
	}{
		{`{}`, true, true},
		{`{"silent":true}`, false, false},
		{`{"store_history":false}`, false, true},
		{`{"silent":true,"store_history":true}`, false, false},
		{`{"stop_on_error":false}`, true, false},
	} {
		var r wire.ExecuteRequest
		if err := json.Unmarshal([]byte(tt.in), &r); err != nil {
			t.Fatal(err)
		}
		if r.Stores() != tt.stores || r.Stops() != tt.stops {
			t.Errorf("%s: stores %v, stops %v", tt.in, r.Stores(), r.Stops())
		}
	}
}

// Ensure members that clients require are encoded even if empty.
func TestOkReplyIsWhole(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(wire.NewExecuteOK(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{`"user_expressions":{}`, `"payload":[]`, `"execution_count":0`} {
		if !strings.Contains(string(b), member) {
			t.Errorf("%s lacks %s", b, member)
		}
	}
}

// Ensure a value that JSON cannot represent does not end the kernel.
func TestUnencodable(t *testing.T) {
	t.Parallel()
	m, err := wire.Decode(wire.NewSigner("k").Make(nil, "display_data", nil, map[string]any{"x": math.NaN()}))
	if err != nil || !json.Valid(m.Content()) {
		t.Errorf("%v %s", err, m.Content())
	}
}

// FuzzDecode feeds messages of frames separated by a newline.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("id\n<IDS|MSG>\nsig\n{\"msg_id\":\"1\",\"msg_type\":\"status\"}\n{\"msg_id\":\"p\"}\n{}\n{}"))
	f.Add([]byte("<IDS|MSG>\n\n{\"msg_id\" : \"a\\\"b\", \"msg_type\":1}\n{}\n{}\n{}"))
	f.Add([]byte("<IDS|MSG>"))
	s := wire.NewSigner("key")
	f.Fuzz(func(t *testing.T, in []byte) {
		parts := bytes.Split(in, []byte("\n"))
		kind, parent, ok := wire.Peek(parts)
		m, err := wire.Decode(parts)
		if err != nil {
			return
		}
		if !ok {
			t.Fatal("decoded, but not peeked")
		}
		if plain(m.Header.MsgType) && plain(m.ParentID()) && (kind == "" || parent != m.ParentID()) {
			t.Fatalf("peeked %q of %q, decoded %q of %q", kind, parent, m.Header.MsgType, m.ParentID())
		}
		if s.Verify(m) == nil {
			t.Fatal("unsigned, but verified")
		}
		var v any
		_ = m.Unmarshal(&v) // must not panic
		if again, err := wire.Decode(s.Resign(m, struct{}{})); err != nil ||
			s.Verify(again) != nil && !errors.Is(s.Verify(again), wire.ErrReplayed) {
			t.Fatalf("resigned: %v", err)
		}
	})
}

// plain reports whether an ID or type has the form that clients use.
func plain(s string) bool { return s != "" && !strings.ContainsAny(s, `"\\`) }
