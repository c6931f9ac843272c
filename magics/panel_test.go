package magics

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Watch implements clusterpb.ControlServer.
func (f *fakeCluster) Watch(_ *clusterpb.WatchRequest, s grpc.ServerStreamingServer[clusterpb.ClusterStatus]) error {
	for {
		st, err := f.Status(s.Context(), nil)
		if err != nil {
			return err
		}
		f.mu.Lock()
		news := f.news
		if f.shown != nil {
			st = f.shown
		}
		f.mu.Unlock()
		if err := s.Send(st); err != nil {
			return err
		}
		select {
		case <-news:
		case <-s.Context().Done():
			return s.Context().Err()
		case <-f.over:
			return nil
		}
	}
}

// show sends panels a changed status.
func (f *fakeCluster) show(t testing.TB, change func(*clusterpb.ClusterStatus)) {
	t.Helper()
	st, err := f.Status(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	st = proto.CloneOf(st)
	change(st)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown = st
	close(f.news)
	f.news = make(chan struct{})
}

// openPanel is one front end's comm.
type openPanel struct {
	t        *testing.T
	messages chan json.RawMessage
	answers  chan map[string]any
	served   chan struct{}
	asked    int
}

// panelOf opens a comm, which is closed at the end of the test at the latest.
func panelOf(t *testing.T, s *Session) *openPanel {
	t.Helper()
	p := &openPanel{
		t: t, messages: make(chan json.RawMessage), answers: make(chan map[string]any, 1000), served: make(chan struct{}),
	}
	go func() {
		defer close(p.served)
		s.ServePanel(t.Context(), nil, p.messages, func(data any) { p.answers <- asObject(t, data) })
	}()
	t.Cleanup(p.close)
	return p
}

func (p *openPanel) close() {
	if p.messages != nil {
		close(p.messages)
		p.messages = nil
		<-p.served
	}
}

func (p *openPanel) say(message string) {
	p.t.Helper()
	select {
	case p.messages <- json.RawMessage(message):
	case <-time.After(time.Minute):
		p.t.Fatal("the panel's messages are not read")
	}
}

// next returns the next message of the kernel.
func (p *openPanel) next() map[string]any {
	p.t.Helper()
	select {
	case m := <-p.answers:
		return m
	case <-time.After(time.Minute):
		p.t.Fatal("no message within a minute")
		return nil
	}
}

// state returns the next state that has a property.
func (p *openPanel) state(of string, has func(cluster map[string]any) bool) (cluster map[string]any, sequence int) {
	p.t.Helper()
	for {
		m := p.next()
		if m["type"] != "state" {
			p.t.Fatalf("waiting for %s: %v", of, m)
		}
		if c, _ := m["cluster"].(map[string]any); c != nil && has(c) {
			return c, int(m["sequence"].(float64))
		}
	}
}

// ask sends a request and returns its answer, and the messages that came before it.
func (p *openPanel) ask(message string) (answer map[string]any, before []map[string]any) {
	p.t.Helper()
	p.asked++
	p.say(strings.Replace(message, "{", fmt.Sprintf(`{"request":%d,`, p.asked), 1))
	for {
		m := p.next()
		if m["request"] == float64(p.asked) {
			return m, before
		}
		before = append(before, m)
	}
}

func words(of string) func(map[string]any) bool {
	return func(c map[string]any) bool { return c["words"] == of }
}

// reserved is a session with a cluster, and its driver.
func reserved(t *testing.T) (*Session, *fakeDrivers, *fakeCluster) {
	t.Helper()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve --workers 2")
	return s, d, d.get("local-1")
}

// TestPanelWatches: every open panel of a kernel gets the whole state at once and after each change, and nothing when
// nothing that it shows has changed.
func TestPanelWatches(t *testing.T) {
	t.Parallel()
	s, _, f := reserved(t)
	first, second := panelOf(t, s), panelOf(t, s) // two notebooks on one kernel, or a page and its reload
	first.say(`{"type":"show"}`)
	c, n := first.state("the cluster", words("ready"))
	if c["name"] != "local-1" || n != 1 || len(c["executors"].([]any)) != 2 {
		t.Errorf("state %d is %v", n, c)
	}
	f.show(t, func(st *clusterpb.ClusterStatus) { st.Request = nil }) // which the panel does not show
	f.show(t, func(st *clusterpb.ClusterStatus) { st.State = "running" })
	if _, n := first.state("the change", words("running")); n != 2 {
		t.Errorf("the change has number %d", n)
	}
	second.say(`{"type":"show","cluster":"no such cluster"}`)
	second.state("the cluster", words("running"))
	first.close()
	f.show(t, func(st *clusterpb.ClusterStatus) { st.State = "stopping" })
	second.state("a change after another panel is closed", words("stopping"))
}

// TestPanelOfADriverThatEnds: a stream that the driver ends, as at a shutdown, is no problem to show.
func TestPanelOfADriverThatEnds(t *testing.T) {
	t.Parallel()
	s, _, f := reserved(t)
	p := panelOf(t, s)
	p.say(`{"type":"show"}`)
	p.state("the cluster", words("ready"))
	close(f.over)
	f.show(t, func(st *clusterpb.ClusterStatus) { st.State = "running" }) // what the next look finds
	for {
		m := p.next()
		if m["problem"] != "" {
			t.Fatalf("the panel shows %q", m["problem"])
		}
		if c, _ := m["cluster"].(map[string]any); c != nil && c["words"] == "running" {
			return
		}
	}
}

// TestHiddenPanel: a panel that nobody looks at gets no message but answers.
func TestHiddenPanel(t *testing.T) {
	t.Parallel()
	s, _, f := reserved(t)
	p, other := panelOf(t, s), panelOf(t, s)
	p.say(`{"type":"show"}`)
	p.state("the cluster", words("ready"))
	p.say(`{"type":"hide"}`)
	p.ask(`{"type":"runs","cluster":"local-1"}`)
	other.say(`{"type":"show"}`)
	other.state("the cluster", words("ready"))
	f.show(t, func(st *clusterpb.ClusterStatus) { st.State = "stopping" })
	other.state("the change", words("stopping"))
	p.say(`{"type":"ping"}`)
	if _, before := p.ask(`{"type":"runs","cluster":"local-1"}`); len(before) != 0 {
		t.Errorf("the hidden panel gets %v", before)
	}
	p.say(`{"type":"show"}`)
	p.state("the cluster, shown again", words("stopping"))
}

// TestPanelActs: verbs run beside a busy cell, on the cluster that is named; others are refused, and a cluster of
// another notebook does not become this one's.
func TestPanelActs(t *testing.T) {
	t.Parallel()
	s, d, f := reserved(t)
	f.mu.Lock()
	f.hang = true
	f.mu.Unlock()
	must(t, s, "%tfcluster start main_fun")
	_, waits := inCell(t, s, "%tfcluster wait")
	other := d.add(&clusterpb.ReserveRequest{Name: "other", Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}})
	p := panelOf(t, s)
	for _, tt := range []struct{ act, want, problem string }{
		{`"verb":"shutdown","cluster":"local-1"`, "", "run 1 is active"},
		{`"verb":"reset","cluster":"other"`, "other", ""},
		{`"verb":"run","cluster":"local-1"`, "", `cannot run "run"`},
		{`"verb":"reserve","cluster":"local-1"`, "", "run it in a cell"},
		{`"verb":"stop"`, "", "named no cluster"},
		{`"verb":"stop","cluster":"--help"`, "", "--help"},
		{`"verb":"stop","cluster":"../local-1"`, "", "../local-1"},
	} {
		m, _ := p.ask(`{"type":"act",` + tt.act + `}`)
		said := fmt.Sprint(m["text"], m["message"])
		if (m["type"] == "error") != (tt.problem != "") || !strings.Contains(said, tt.want) ||
			!strings.Contains(said, tt.problem) {
			t.Errorf("%s: %v", tt.act, m)
		}
	}
	if s.LastName() != "local-1" {
		t.Errorf("the session's cluster is %s", s.LastName())
	}
	p.say(`{"type":"act","verb":"stop","cluster":"local-1"}`)
	waitUntil(t, "the stop", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.stops) == 1
	})
	close(f.stopped)
	if m := p.next(); m["type"] != "acted" {
		t.Errorf("stop: %v", m)
	}
	select {
	case err := <-waits:
		if err != nil {
			t.Errorf("the cell that waited: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the cell still waits")
	}
	must(t, s, "%tfcluster start main_fun")
	if m, _ := p.ask(`{"type":"act","verb":"shutdown","cluster":"local-1","force":true}`); m["type"] != "acted" {
		t.Errorf("the forced shutdown: %v", m)
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if len(other.shutdowns)+len(other.stops) > 0 {
		t.Error("the other cluster was stopped")
	}
}

// TestPanelFollows: lines of a run as they come until its end, or until the panel looks elsewhere; pages
// of what is stored.
func TestPanelFollows(t *testing.T) {
	t.Parallel()
	s, _, f := reserved(t)
	must(t, s, "%tfcluster start main_fun")
	f.mu.Lock()
	f.ends = true
	for i := range 2 * 1000 {
		f.lines = append(f.lines, &clusterpb.Line{Task: "worker:0", Seq: uint64(i), Text: fmt.Sprint("line ", i)})
	}
	f.mu.Unlock()
	p := panelOf(t, s)
	p.say(`{"type":"follow","request":7,"cluster":"local-1","run":1,"last":500}`)
	lines, skipped := 0, 0
	for over := false; !over; {
		m := p.next()
		if m["type"] != "lines" || m["request"] != 7.0 {
			t.Fatalf("%v", m)
		}
		lines, skipped = lines+len(m["lines"].([]any)), skipped+int(m["skipped"].(float64))
		over = m["over"] == true
	}
	if lines != 1000 || skipped != 1000 {
		t.Errorf("%d lines, and %d that were left out", lines, skipped)
	}
	m, _ := p.ask(`{"type":"page","cluster":"local-1","run":1,"text":"Line","last":5000,"before":{"worker:0":40}}`)
	f.mu.Lock()
	asked := f.logs[len(f.logs)-1]
	f.ends = false
	f.mu.Unlock()
	if len(m["lines"].([]any)) != 2000 || asked.GetGrep() != "Line" || asked.GetLast() != 1000 ||
		asked.GetBefore()["worker:0"] != 40 {
		t.Errorf("a page of %d lines, asked for by %v", len(m["lines"].([]any)), asked)
	}
	p.say(`{"type":"follow","request":8,"cluster":"local-1","run":1,"last":500}`)
	for m := p.next(); m["type"] != "lines"; m = p.next() {
		t.Fatalf("%v", m)
	}
	p.say(`{"type":"unfollow"}`)
	p.close() // waits for the end of following
}

// TestPanelRefuses: what is not a request is answered by an error, and the comm goes on.
func TestPanelRefuses(t *testing.T) {
	t.Parallel()
	s, _, _ := reserved(t)
	p := panelOf(t, s)
	for _, m := range []string{
		`7`, `null`, `{"type":"reboot"}`, `{"type":"page","cluster":"none"}`,
		`{"type":"page","cluster":"local-1","after":[]}`, `{"type":"curves","cluster":"local-1"}`,
		`{"type":"samples","cluster":"local-1","after":"x"}`, `{"type":"board","cluster":"../x"}`,
	} {
		p.say(m)
		if got := p.next(); got["type"] != "error" || got["message"] == "" {
			t.Errorf("%s is answered by %v", m, got)
		}
	}
	p.say(`{"type":"show"}`)
	p.state("the cluster", words("ready"))
}

// waitUntil waits for a condition.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within a minute", what)
		}
	}
}
