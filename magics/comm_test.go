package magics

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/panel"
	"github.com/tfcluster/tfcluster/magics/session"
)

// commTranscript is what kernel and front end say to one another, as the extension's
// own tests read it.
type commTranscript struct {
	Target, Mime string
	Output       json.RawMessage
	Exchanges    []struct {
		Name    string
		Request json.RawMessage
		Reply   map[string]any
	}
}

func readTranscript(t *testing.T) commTranscript {
	t.Helper()
	raw, err := os.ReadFile("../jupyter-ext/testdata/comm.json")
	if err != nil {
		t.Fatal(err)
	}
	var said commTranscript
	if err := json.Unmarshal(raw, &said); err != nil {
		t.Fatal(err)
	}
	return said
}

// talk sends each message and gives the answers.
func talk(t *testing.T, s *Session, requests ...json.RawMessage) []map[string]any {
	t.Helper()
	var answers []map[string]any
	for _, m := range requests { // one after the other: requests are answered beside each other
		messages := make(chan json.RawMessage, 1)
		messages <- m
		close(messages)
		s.ServePanel(t.Context(), nil, messages, func(data any) { answers = append(answers, asObject(t, data)) })
	}
	if len(answers) != len(requests) {
		t.Fatalf("%d answers to %d messages: %v", len(answers), len(requests), answers)
	}
	return answers
}

// boardType is the display that the extension renders.
const boardType = "application/vnd.tfcluster.tensorboard.v1+json"

// TestCommTranscript: the words of the comm are those that the extension expects.
func TestCommTranscript(t *testing.T) {
	t.Parallel()
	said := readTranscript(t)
	if said.Target != panel.Target || said.Mime != boardType || len(said.Exchanges) == 0 {
		t.Fatalf("the transcript is %+v", said)
	}
	board := said.Exchanges[0].Reply
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve")
	f := d.get("local-1")
	f.mu.Lock()
	f.board = &clusterpb.TensorBoardReply{
		Id: board["id"].(string), Path: board["path"].(string), Logdir: board["logdir"].(string),
	}
	f.mu.Unlock()
	out := must(t, s, "%tfcluster tensorboard")
	shown, err := json.Marshal(out.mime[len(out.mime)-1][boardType])
	if err != nil || !sameJSON(t, shown, said.Output) {
		t.Errorf("the cell's output holds %s, want %s (%v)", shown, said.Output, err)
	}
	for _, e := range said.Exchanges {
		if got := talk(t, s, e.Request)[0]; !reflect.DeepEqual(got, e.Reply) {
			t.Errorf("%s: the answer is %v, want %v", e.Name, got, e.Reply)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// TestComm: the front end gets a path for an id that a cell of this kernel showed,
// and for no other; a cell's output holds no path.
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
	const path = "tfcluster/local-1/00112233445566778899aabbccddeeff/"
	if strings.Contains(string(shown), path) || data[boardType] == nil {
		t.Errorf("the cell's output is %s", shown)
	}
	var requests []json.RawMessage
	for _, m := range []string{
		`{"type":"tensorboard","id":"tb-1"}`, `{"type":"tensorboard","id":"other"}`, `{"type":"tensorboard","id":"../x"}`,
		`[]`, `{"type":"reboot"}`,
	} {
		requests = append(requests, json.RawMessage(m))
	}
	got := talk(t, s, requests...)
	if got[0]["path"] != path || got[0]["logdir"] == "" {
		t.Errorf("answers are %v", got)
	}
	for _, i := range []int{1, 2, 3, 4} {
		if got[i]["type"] != "error" || got[i]["message"] == "" {
			t.Errorf("%s is answered by %v", requests[i], got[i])
		}
	}
}

// TestLinesPath: of a cluster by its name, and of the current one; nothing but a path of the broker is accepted.
func TestLinesPath(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	if path, err := s.LinesPath(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "there is no cluster") {
		t.Errorf("without a cluster: %q, %v", path, err)
	}
	must(t, s, "%tfcluster reserve")
	f := d.get("local-1")
	const good = "tfcluster/local-1/00112233445566778899aabbccddeeff/"
	for _, tt := range []struct {
		cluster, answer, want string // answer "": its driver does not know the call
	}{
		{"local-1", good, good},
		{"", good, good},
		{"local-1", "/" + good, ""},
		{"local-1", good + "lines", ""},
		{"local-1", "tfcluster/../00112233445566778899aabbccddeeff/", ""},
		{"local-1", "http://evil.example/", ""},
		{"local-1", "", ""},
	} {
		f.mu.Lock()
		if f.address = nil; tt.answer != "" {
			f.address = &clusterpb.LinesAddressReply{Path: tt.answer}
		}
		f.mu.Unlock()
		path, err := s.LinesPath(t.Context(), tt.cluster)
		if path != tt.want || errors.Is(err, session.ErrNoLines) != (tt.want == "") {
			t.Errorf("%+v: %q, %v", tt, path, err)
		}
	}
	for _, name := range []string{"other", "../local-1"} {
		if path, err := s.LinesPath(t.Context(), name); err == nil || errors.Is(err, session.ErrNoLines) {
			t.Errorf("cluster %s: %q, %v", name, path, err)
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
		{"%tfcluster reserve --ps-k|", "--ps-kind", "--ps-k"},
		{"%tfcluster reserve --role db=1 --db-k|", "--db-kind", "--db-k"},
		{"%tfcluster reserve --role db=1 --db-kind s|", "sidecar", "s"},
		{"%tfcluster reserve --role db=1 --worker-depends-on d|", "db", "d"},
		{"%tfcluster reserve --framework=py|", "pytorch", "py"},
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
		{"run = %tfcluster wa|", "wait", "wa"},
		{"for i in range(2):\n    a, run.x[0] =%tfcluster start m|", "main_fun", "m"},
		{"if x == %tfcluster wa|", "", ""},
		{"print('= %tfcluster wa|", "", ""},
		{"x = 5 %tfcluster wa|", "", ""},
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
	for code, want := range map[string]string{
		"%tfcluster start": "PROGRAM", "%tfcluster": "VERB", "%tfcluster x": "VERB",
	} {
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

// asObject returns a message as the front end reads it.
func asObject(t *testing.T, data any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
