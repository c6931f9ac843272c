package kerneltest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// Ensure Python cells and matched cells run in order and share one counter.
func TestOrderAndCounts(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	first := f.Execute("import time; time.sleep(0.3); print('one')")
	second := f.Execute("%toy lines 2 1")
	third := f.Execute("In[2]")

	if n := f.Begin(first); n != 1 {
		t.Errorf("first cell is [%d]", n)
	}
	f.Stream(first, "stdout", "one\n")
	f.Status(first, "idle")
	if n := f.Begin(second); n != 2 {
		t.Errorf("matched cell is [%d]", n)
	}
	f.Stream(second, "stdout", "toy 0\ntoy 1\n")
	f.Status(second, "idle")
	if n := f.Begin(third); n != 3 {
		t.Errorf("third cell is [%d]", n)
	}
	if n, text := f.Result(third); n != 3 || text != "'%toy lines 2 1'" {
		t.Errorf("In[2] at [%d] is %s", n, text)
	}
	f.Status(third, "idle")
	for i, id := range []string{first, second, third} {
		if r := f.Executed(id, "ok"); r.ExecutionCount != i+1 {
			t.Errorf("reply %d has count %d", i+1, r.ExecutionCount)
		}
	}
	f.NothingLeft()
}

// Ensure a matched cell's value is its Out and the value of _.
func TestValue(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	id := f.Execute("%toy value forty-two")
	f.Begin(id)
	if n, text := f.Result(id); n != 1 || text != "forty-two" {
		t.Errorf("result [%d] %s", n, text)
	}
	f.Status(id, "idle")
	f.Executed(id, "ok")
	if _, text := f.Run("print(_, Out[1])"); text != "forty-two forty-two\n" {
		t.Errorf("Python sees %q", text)
	}
	f.NothingLeft()
}

// Ensure requests that do not count leave the counter unchanged.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	no := false
	id := f.Send("execute_request",
		wire.ExecuteRequest{Code: "%toy lines 1 0", StoreHistory: &no, UserExpressions: map[string]any{}})
	f.Executed(id, "ok")
	f.Until(id)
	id = f.Send("execute_request",
		wire.ExecuteRequest{Code: "%toy value 1", Silent: true, UserExpressions: map[string]any{}})
	f.Executed(id, "ok")
	f.Status(id, "busy")
	f.Status(id, "idle")
	if r, _ := f.Run("1"); r.ExecutionCount != 1 {
		t.Errorf("the first counted cell is [%d]", r.ExecutionCount)
	}
	f.NothingLeft()
}

// Ensure an error aborts the cells queued after it, of either kind and in both directions,
// unless the request disables that.
func TestAbort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, fails, after string }{
		{"python then magic", "import time; time.sleep(0.2); 1/0", "%toy lines 1 0"},
		{"magic then python", "%toy fail", "print(1)"},
		{"magic then magic", "%toy fail", "%toy lines 1 0"},
		{"panic", "%toy panic", "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
			hold := f.Execute("import time; time.sleep(0.3)") // so that both are queued
			fails, after := f.Execute(tt.fails), f.Execute(tt.after)
			f.Executed(hold, "ok")
			f.Executed(fails, "error")
			f.Executed(after, "aborted")
			f.Until(after)
			if r, text := f.Run("%toy lines 1 0"); r.Status != "ok" || text != "toy 0\n" || r.ExecutionCount != 3 {
				t.Errorf("afterwards: %+v %q", r, text)
			}
			f.NothingLeft()
		})
	}
	t.Run("stop_on_error false", func(t *testing.T) {
		t.Parallel()
		f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
		no := false
		fails := f.Send("execute_request",
			wire.ExecuteRequest{Code: "%toy fail", StopOnError: &no, UserExpressions: map[string]any{}})
		after := f.Execute("%toy lines 1 0")
		f.Executed(fails, "error")
		f.Executed(after, "ok")
		f.Until(after)
		f.NothingLeft()
	})
}

// Ensure a magic that fails at once aborts the cells of either kind that a client sends without
// waiting for its reply, as Run All does.
func TestAbortOfRunAll(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	runAll := func(gap time.Duration) (replies []string) {
		ids := []string{f.Execute("%toy fail")}
		for _, code := range []string{"print(1)", "%toy lines 1 0", "print(2)"} {
			time.Sleep(gap)
			ids = append(ids, f.Execute(code))
		}
		for _, id := range ids {
			replies = append(replies, f.ExecuteReply(id).Status)
		}
		f.Until(ids[3])
		return replies
	}
	want := []string{"error", "aborted", "aborted", "aborted"}
	for gap := range time.Duration(6) { // ms, a tenth of the time for which the kernel waits
		// A busy machine may stop the test for longer than the kernel waits, but not each time.
		for attempt := 1; ; attempt++ {
			got := runAll(gap * time.Millisecond)
			if slices.Equal(got, want) {
				break
			}
			if attempt == 10 {
				t.Fatalf("cells %d ms apart: replies %q, want %q", gap, got, want)
			}
		}
	}
	f.NothingLeft()
}

// Ensure an error of a silent request aborts nothing.
func TestNoAbortAfterSilent(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	for _, code := range []string{"import time; time.sleep(0.3); 1/0", "%toy fail"} {
		hold := f.Execute("import time; time.sleep(0.3)") // so that all are queued
		fails := f.Send("execute_request", wire.ExecuteRequest{Code: code, Silent: true, UserExpressions: map[string]any{}})
		after := f.Execute("%toy lines 1 0")
		f.Executed(hold, "ok")
		f.Executed(fails, "error")
		f.Executed(after, "ok")
		f.Until(after)
	}
	f.NothingLeft()
}

// Ensure an error aborts no cell that is sent after its reply, however soon.
func TestNoAbortOfLaterCells(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	for range 50 {
		f.Executed(f.Execute("%toy fail"), "error")
		next := f.Execute("%toy lines 1 0")
		f.Executed(next, "ok")
		f.Until(next)
	}
	f.NothingLeft()
}

// Ensure a cell in mode Now runs concurrently with a busy one, and that the counts stay
// distinct afterwards.
func TestNow(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	busy := f.Execute("input()")
	if n := f.Begin(busy); n != 1 {
		t.Errorf("busy cell is [%d]", n)
	}
	now := f.Execute("%toy lines 1 0 --now")
	if n := f.Begin(now); n != 2 {
		t.Errorf("the concurrent cell is [%d]", n)
	}
	f.Stream(now, "stdout", "toy 0\n")
	f.Status(now, "idle")
	f.Status(busy, "busy") // a client takes the last status for the kernel's
	f.Executed(now, "ok")
	later := f.Execute("2")
	f.Input(busy, "x")
	f.Executed(busy, "ok")
	if n, _ := f.Result(busy); n != 1 {
		t.Errorf("busy cell's result is [%d]", n)
	}
	f.Status(busy, "idle")
	if r := f.Executed(later, "ok"); r.ExecutionCount != 3 {
		t.Errorf("the cell after both is [%d]", r.ExecutionCount)
	}
	f.Until(later)
	if _, text := f.Run("print(In[1:4])"); text != "['input()', '%toy lines 1 0 --now', '2']\n" {
		t.Errorf("In is %q", text)
	}
	f.NothingLeft()
}

// Ensure a cell that the child aborts between two counts does not lose a count.
func TestNowDuringFailingCell(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	busy := f.Execute("input(); 1/0")
	f.Begin(busy)
	aborted := f.Execute("1")
	now := f.Execute("%toy value v --now")
	if r := f.Executed(now, "ok"); r.ExecutionCount != 3 {
		t.Errorf("the concurrent cell is [%d]", r.ExecutionCount)
	}
	f.Input(busy, "")
	f.Executed(busy, "error")
	f.Executed(aborted, "aborted")
	f.Until(aborted)
	if r, text := f.Run("print(In[3], Out[3])"); r.ExecutionCount != 4 || text != "%toy value v --now v\n" {
		t.Errorf("[%d] %q", r.ExecutionCount, text)
	}
	f.NothingLeft()
}

// Ensure a waiting matched cell shows what it waits for, and how to avoid that.
func TestWaitsHint(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	busy := f.Execute("input()")
	f.Begin(busy)
	time.Sleep(500 * time.Millisecond) // cells in quick succession are those of Run All, which need no hint
	waits := f.Execute("%toy lines 1 0")
	f.Stream(waits, "stderr", "waits for cell [1]; add --now\n")
	f.Input(busy, "")
	f.Until(waits)
	f.Executed(busy, "ok")
	f.Executed(waits, "ok")
	f.NothingLeft()
}

// Ensure text is merged, none is lost, and it precedes later output.
func TestFlood(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	id := f.Execute("%toy flood 200000")
	f.Executed(id, "ok")
	messages := f.Until(id)
	if got := strings.Count(f.Text(messages), "\n"); got != 200000 {
		t.Errorf("%d lines", got)
	}
	if len(messages) > 200 {
		t.Errorf("%d messages for one burst", len(messages))
	}
	f.NothingLeft()
}

// Ensure displays can be updated.
func TestDisplay(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	id := f.Execute("%toy progress")
	f.Begin(id)
	f.Pub("display_data", id)
	for range 10 {
		f.Pub("update_display_data", id)
	}
	f.Status(id, "idle")
	f.Executed(id, "ok")
	f.NothingLeft()
}

// Ensure comms on the Interceptor's targets are served while a cell runs, without a status that
// would end the cell for the client, and are listed with the child's.
func TestCommDuringCell(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	busy := f.Execute("input()")
	f.Begin(busy)
	open := f.Send("comm_open", wire.CommOpen{CommID: "c1", Target: "toy", Data: json.RawMessage("{}")})
	f.Send("comm_msg", wire.CommData{CommID: "c1", Data: json.RawMessage(`{"x":1.5}`)})
	var data wire.CommData
	if err := f.Pub("comm_msg", open).Unmarshal(&data); err != nil || string(data.Data) != `{"x":1.5}` {
		t.Errorf("echo %s %v", data.Data, err)
	}
	f.Input(busy, "")
	f.Until(busy)
	f.Executed(busy, "ok")
	id := f.Send("comm_info_request", map[string]any{})
	if m := f.Reply("comm_info_reply", id); !strings.Contains(string(m.Content()), `"c1":{"target_name":"toy"}`) {
		t.Errorf("comm_info %s", m.Content())
	}
	f.Until(id)
	f.NothingLeft()
}

// Ensure completion and inspection are answered by the Interceptor on its lines and by the
// child on others.
func TestCompleteAndInspect(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	for _, tt := range []struct{ request, code, want string }{
		{"complete", "%toy f", `"matches":["flood","fail"]`},
		{"complete", "impor", `"import"`},
		{"inspect", "%toy x", `"a toy"`},
		{"inspect", "zip", `Init signature`},
	} {
		// jedi's cache is shared with other tests' kernels and written in place: what it cannot read gives no matches.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			id := f.Send(tt.request+"_request", map[string]any{"code": tt.code, "cursor_pos": len(tt.code), "detail_level": 0})
			m := f.Reply(tt.request+"_reply", id)
			f.Until(id)
			if strings.Contains(string(m.Content()), tt.want) {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s %q: %s", tt.request, tt.code, m.Content())
				break
			}
		}
	}
	f.NothingLeft()
}
