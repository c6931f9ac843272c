package lines

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// counted is a source of n lines in replies of 1000, which counts the bytes that were sent.
func counted(n int, text string, sent *atomic.Int64) Source {
	return func(_ context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
		if err := send(&clusterpb.LinesReply{Run: 3}); err != nil {
			return err
		}
		for from := 0; from < n; from += 1000 {
			u := &clusterpb.LinesReply{}
			for i := from; i < min(n, from+1000); i++ {
				u.Lines = append(u.Lines,
					&clusterpb.Line{Task: "worker:0", Seq: uint64(i), UnixNano: int64(i) * 1e6, Text: fmt.Sprint(i, text)})
			}
			if err := send(u); err != nil {
				return err
			}
			sent.Add(int64(len(u.GetLines()) * len(text)))
		}
		return send(&clusterpb.LinesReply{Over: req.GetFollow()})
	}
}

// ahead is how many bytes may be on their way to a client: in buffers of three sockets, broker and handler.
const ahead = 8 << 20

// TestLive: many lines arrive in order, exactly once, no faster than the client reads; then the end.
func TestLive(t *testing.T) {
	t.Parallel()
	const n = 20_000
	text := strings.Repeat(" x", 500)
	var sent atomic.Int64
	s := serve(t, counted(n, text, &sent))
	conn := s.follow(url.Values{"run": {"3"}})
	got, run := 0, int32(0)
	for {
		m := read(t, conn)
		if m.Over {
			break
		}
		run = max(run, m.Run)
		for _, l := range m.Lines {
			if l.Number != uint64(got) || l.Text != fmt.Sprint(got, text) || l.Task != "worker:0" || l.Error ||
				l.Time != int64(got) {
				t.Fatalf("line %d is %+v", got, l)
			}
			got++
		}
		if more := sent.Load() - int64(got*len(text)); m.Error != "" || more > ahead {
			t.Fatalf("after %d lines %d bytes were sent; error %q", got, more, m.Error)
		}
	}
	readClose(t, conn, websocket.CloseNormalClosure)
	if got != n || run != 3 {
		t.Errorf("%d lines of run %d arrived", got, run)
	}
	s.idle()
}

// TestDownload: a file of any size is sent as it is read.
func TestDownload(t *testing.T) {
	t.Parallel()
	const n = 20_000
	text := strings.Repeat(" x", 500)
	var sent atomic.Int64
	s := serve(t, counted(n, text, &sent))
	resp := s.get(s.path("lines?task=worker:0"))
	for name, want := range map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Content-Disposition": "attachment; filename=brave-otter-run-003.log",
		"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
	} {
		if got := resp.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q once", name, got, want)
		}
	}
	var all strings.Builder
	for buffer := make([]byte, 1<<20); ; {
		k, err := resp.Body.Read(buffer)
		all.Write(buffer[:k])
		if more := sent.Load() - int64(all.Len()); more > ahead {
			t.Fatalf("after %d bytes %d more were sent", all.Len(), more)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := strings.Split(all.String(), "\n")
	for i, l := range got[:len(got)-1] {
		if l != fmt.Sprint("[worker:0] ", i, text) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	if len(got) != n+1 || got[n] != "" {
		t.Errorf("there are %d lines", len(got)-1)
	}
}

// hostile are lines that no program may take for anything but text.
func hostile() []*clusterpb.Line {
	broken := strings.ToValidUTF8("\xff\xfe cut \xe2\x82", string(utf8.RuneError)) // as the store returns it
	var lines []*clusterpb.Line
	for i, text := range []string{
		"", "\x00\x01\x1b[2J\x1b]0;title\x07\x7f\u0085\u2028\u202e", "</script><script>alert(1)</script>", `{"over":true}`,
		broken, strings.Repeat("\x1b\x00", 1<<19),
	} {
		lines = append(lines, &clusterpb.Line{
			Task: "worker:1", Seq: uint64(i), UnixNano: 1_700_000_000_123_456_789, Text: text, Stream: clusterpb.Line_STDERR,
		})
	}
	return lines
}

// TestHostileText survives as data.
func TestHostileText(t *testing.T) {
	t.Parallel()
	s := serve(t,
		stored(&clusterpb.LinesReply{Run: 3, Lines: hostile(), Gap: "worker:1: the oldest 7 lines are gone (quota)"},
			&clusterpb.LinesReply{Over: true}))
	conn := s.follow(nil)
	var got []clusterpb.LineJSON
	for m := read(t, conn); !m.Over; m = read(t, conn) {
		got = append(got, m.Lines...)
	}
	want := "-- worker:1: the oldest 7 lines are gone (quota) --\n"
	for i, l := range hostile() {
		if got[i].Text != l.GetText() || !got[i].Error || got[i].Number != uint64(i) {
			t.Errorf("line %d arrives as %.100q", i, got[i].Text)
		}
		want += "2023-11-14T22:13:20.123Z [worker:1] " + l.GetText() + "\n"
	}
	if code, body := s.text(s.path("lines?run=3&times=1")); code != http.StatusOK || body != want {
		t.Errorf("%d, the file is %.300q", code, body)
	}
}

// TestPiecesOfALine: a line that the agent cut is one line of the file, unless another task's is between.
func TestPiecesOfALine(t *testing.T) {
	t.Parallel()
	piece := func(task string, seq uint64, text string, continues bool) *clusterpb.Line {
		return &clusterpb.Line{Task: task, Seq: seq, Text: text, Continues: continues}
	}
	s := serve(t, stored(
		&clusterpb.LinesReply{Lines: []*clusterpb.Line{piece("worker:0", 0, "a", true)}},
		&clusterpb.LinesReply{Lines: []*clusterpb.Line{
			piece("worker:0", 1, "b", true), piece("worker:1", 0, "c", false), piece("worker:0", 2, "d", false),
		}, Gap: "hole"},
		&clusterpb.LinesReply{Lines: []*clusterpb.Line{piece("worker:0", 3, "e", true), piece("worker:0", 4, "f", false)}},
	))
	if _, body := s.text(s.path("lines")); body != "[worker:0] a\n-- hole --\n[worker:0] b\n[worker:1] c\n[worker:0] d\n"+
		"[worker:0] ef\n" {
		t.Errorf("the file is %q", body)
	}
}

// TestWhoMayRead: pages of the Jupyter server with the token, processes of this user.
func TestWhoMayRead(t *testing.T) {
	t.Parallel()
	s := serve(t, stored(&clusterpb.LinesReply{Run: 3}, &clusterpb.LinesReply{Over: true}))
	if info, err := os.Stat(s.at.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v, want mode 0600", info, err)
	}
	wrong := "/brave-otter/" + strings.Repeat("0", 32) + "/"
	for path, want := range map[string]int{
		s.path("lines"): 200, s.path("lines/"): 404, s.path("lines/other"): 404, wrong + "lines": 404, wrong +
			"lines/live": 404, s.path("lines/live"): 400,
	} {
		if code, body := s.text(path); code != want {
			t.Errorf("%s: %d %q, want %d", path, code, body, want)
		}
	}
	for _, c := range []struct {
		path, origin string
		want         int
	}{{s.path("lines/live"), "http://evil.example", 403}, {s.path("lines/live"), "null", 403}, {
		wrong + "lines/live", "http://jupyter.example", 404,
	}} {
		conn, resp, err := s.dial(c.path, nil, c.origin)
		if err == nil {
			conn.Close()
			t.Fatalf("%s of %s was let in", c.path, c.origin)
		}
		if resp == nil || resp.StatusCode != c.want {
			t.Errorf("%s of %s: %v, %v, want %d", c.path, c.origin, resp, err, c.want)
		}
	}
}

// TestRefused: what cannot be answered is said in words.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ context.Context, req *clusterpb.LogsRequest, _ func(*clusterpb.LinesReply) error) error {
		switch req.GetRun() {
		case 7:
			return status.Error(codes.NotFound, "there is no run 7; the last one is run 3")
		case 8:
			return status.Error(codes.Internal, "read lines of worker:0: input/output error")
		}
		return status.Error(codes.InvalidArgument, "a task is ROLE:NUMBER")
	})
	for query, want := range map[string]string{
		"grep=(": "400 grep is no regular expression (syntax: RE2): error parsing regexp: missing closing ): `(`; " +
			"write \\ before a character that is meant as it is, such as \\(",
		"grep=a(?=b)":     "400 grep is no regular expression (syntax: RE2)",
		"run=x":           `400 run is "x": it must be a number`,
		"run=-1":          "400 run is",
		"run=99999999999": "400 run is",
		"task=a:b:c":      "400 a task is ROLE:NUMBER",
		"run=7":           "404 there is no run 7; the last one is run 3",
		"run=8":           "500 the lines cannot be read: read lines of worker:0: input/output error",
		"run=3&after={}":  "400 the parameter after is only for /lines/live: remove it, or request /lines/live",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := s.text(s.path("lines?" + q.Encode())); !strings.HasPrefix(fmt.Sprint(code, " ", body), want) {
			t.Errorf("%s: %d %s, want %s", query, code, body, want)
		}
		if q.Has("after") {
			q = url.Values{"after": {"[1]"}, "run": {"3"}}
			want = `400 after must be an object of JSON`
		}
		conn := s.follow(q)
		if m := read(t, conn); !strings.HasPrefix(m.Error, want[len("400 "):]) {
			t.Errorf("live %s: %+v, want %s", query, m, want)
		}
	}
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, "http://jupyter.example"+s.path("lines"), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST: %v", resp)
	}
}
