package magics

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// TestComm: the front end gets a path for an id that a cell of this kernel showed,
// and for no other.
func TestComm(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve")
	must(t, s, "%tfcluster start main_fun")
	out := must(t, s, "%tfcluster tensorboard")
	data := out.mime[len(out.mime)-1]
	shown, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(shown), "secret-token") || data[tensorBoardType] == nil {
		t.Errorf("the cell's output is %s", shown)
	}
	messages, answers := make(chan json.RawMessage, 8), make(chan map[string]any, 8)
	for _, m := range []string{`{"type":"tensorboard","id":"tb-1"}`, `{"type":"tensorboard","id":"other"}`, `{"type":"tensorboard","id":"../x"}`, `{"type":"status"}`, `{"type":"ping"}`, `[]`, `{"type":"reboot"}`} {
		messages <- json.RawMessage(m)
	}
	close(messages)
	s.ServeComm(t.Context(), messages, func(data any) { answers <- data.(map[string]any) })
	close(answers)
	var got []map[string]any
	for a := range answers {
		got = append(got, a)
	}
	if len(got) != 7 || got[0]["path"] != "tfcluster/local-1/secret-token/" || got[1]["error"] == nil || got[2]["error"] == nil || got[3]["cluster"] == nil || got[4]["type"] != "pong" || got[5]["type"] != "error" || got[6]["type"] != "error" {
		t.Errorf("answers are %v", got)
	}
	for path, want := range map[string]bool{"tfcluster/x/": true, "/tfcluster/x/": true, "//evil.example/": false, "../x": false, "javascript:alert(1)": false, "https://x": false, "": false, "a/../b": false} {
		if safePath(path) != want {
			t.Errorf("safePath(%q) is %v", path, !want)
		}
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve --workers 2")
	for _, tc := range []struct {
		code string // | is the cursor
		want string // among the matches; "" = not ours
		from string // what the match replaces
	}{
		{"%tfcluster st|", "status", "st"},
		{"%tfcluster |", "reserve", ""},
		{"%tfcluster start --max|", "--max-restarts", "--max"},
		{"%tfcluster reserve --ps-m|", "--ps-memory", "--ps-m"},
		{"%tfcluster reserve --backend |", "local", ""},
		{"%tfcluster reserve --backend=y|", "yarn", "y"},
		{"%tfcluster logs --task w|", "worker:1", "w"},
		{"%tfcluster status -c l|", "local-1", "l"},
		{"%tfcluster attach |", "local-1", ""},
		{"%tfcluster start m|", "main_fun", "m"},
		{"%tfcluster start --wait m|", "main_fun", "m"},
		{"%tfcluster start --args o|", "other", "o"},
		{"%tfcluster help sh|", "shutdown", "sh"},
		{"%%tfcluster start --sh|\nprint(1)", "--show", "--sh"},
		{"é\n%tfcluster wait --sh|ow\nx", "--show", "--sh"},
		{"%tfcluster reserve \\\n  --wor|", "--workers", "--wor"},
		{"x = 1|", "", ""},
		{"%tfcluster start\nprint(|", "", ""},
	} {
		at := strings.Index(tc.code, "|")
		code := strings.Replace(tc.code, "|", "", 1)
		c := s.Complete(context.Background(), code, len([]rune(tc.code[:at])), &fakePython{})
		switch {
		case tc.want == "" && c != nil:
			t.Errorf("%q: completes %v, though it is not ours", tc.code, c.Matches)
		case tc.want == "":
		case c == nil || !strings.Contains(" "+strings.Join(c.Matches, " ")+" ", " "+tc.want+" "):
			t.Errorf("%q: %v, want %s among them", tc.code, c, tc.want)
		case string([]rune(code)[c.Start:c.End]) != tc.from:
			t.Errorf("%q: replaces %q, want %q", tc.code, string([]rune(code)[c.Start:c.End]), tc.from)
		}
	}
	for code, want := range map[string]string{"%tfcluster start": "PROGRAM", "%tfcluster": "VERB", "%tfcluster x": "VERB"} {
		if data := s.Inspect(code, len(code)); data == nil || !strings.Contains(data["text/plain"].(string), want) {
			t.Errorf("Inspect(%q) is %v", code, data)
		}
	}
	if data := s.Inspect("%tfcluster logs -f", 12); !strings.Contains(data["text/plain"].(string), "--follow") {
		t.Errorf("Inspect in the middle of logs is %v", data)
	}
	if data := s.Inspect("print", 3); data != nil {
		t.Errorf("Inspect(print) is %v", data)
	}
}
