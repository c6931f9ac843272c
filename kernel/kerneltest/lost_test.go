package kerneltest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// loseReply is a cell whose reply ipykernel does not send: it raises the exception at the point
// at which an interrupt does that arrives while the cell ends.
const loseReply = `k = get_ipython().kernel
def lose(*_):
    del k.finish_metadata
    raise KeyboardInterrupt
k.finish_metadata = lose`

// loseIdle is a cell whose idle status ipykernel does not publish.
const loseIdle = `k = get_ipython().kernel
def hide(*_):
    del k._publish_status_and_flush
k._publish_status_and_flush = hide`

// Ensure a cell whose reply ipykernel loses ends with an error that the client shows, and that
// the cells of either kind after it run.
func TestLostReply(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	lost := f.Execute(loseReply)
	after := []string{f.Execute("%toy lines 1 0"), f.Execute("print('runs')")}
	f.Begin(lost)
	f.Status(lost, "idle")
	f.Status(lost, "busy")
	var e wire.Error
	if err := f.Pub("error", lost).Unmarshal(&e); err != nil || e.EName != "ReplyLost" || len(e.Traceback) == 0 {
		t.Errorf("error %+v %v", e, err)
	}
	f.Status(lost, "idle")
	if r := f.Executed(lost, "error"); r.EName != "ReplyLost" || !strings.Contains(r.EValue, "run it again") {
		t.Errorf("%+v", r)
	}
	for i, id := range after {
		if r := f.Executed(id, "ok"); r.ExecutionCount != i+2 {
			t.Errorf("the cell after it is [%d]", r.ExecutionCount)
		}
		f.Until(id)
	}
	f.NothingLeft()
}

// Ensure a cell whose idle ipykernel does not publish ends for clients, and the queue
// continues.
func TestLostIdle(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	lost := f.Execute(loseIdle)
	after := f.Execute("%toy lines 1 0")
	f.Executed(lost, "ok")
	f.Begin(lost)
	f.Status(lost, "idle")
	f.Executed(after, "ok")
	f.Until(after)
	f.NothingLeft()
}

// Ensure a cell without a reply and without an idle ends.
func TestLostReplyAndIdle(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	lost := f.Execute(loseIdle + "\n" + loseReply)
	after := f.Execute("%toy lines 1 0")
	f.Begin(lost)
	f.Pub("error", lost)
	f.Status(lost, "idle")
	f.Executed(lost, "error")
	f.Executed(after, "ok")
	f.Until(after)
	f.NothingLeft()
}

// refused are contents of an execute_request; ipykernel does not answer most of them.
func refused() map[string]string {
	return map[string]string{
		"no members":     `{}`,
		"code is null":   `{"code":null}`,
		"code is 5":      `{"code":5}`,
		"a list":         `[1]`,
		"null":           `null`,
		"no JSON":        `{"code":`,
		"deep":           `{"code":"1","x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		"very deep":      `{"code":"1","x":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + `}`,
		"invalid UTF-8":  "{\"code\":\"'\xff\xfe'\"}",
		"lone surrogate": `{"code":"'\ud800'"}`,
	}
}

// Ensure an execute_request that ipykernel does not answer is answered, and does not block
// others.
func TestRefusedRequest(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	for name, content := range refused() {
		id := f.Send("execute_request", json.RawMessage(content))
		after := f.Execute("%toy lines 1 0")
		var r wire.ExecuteReply
		if err := f.Reply("execute_reply", id).Unmarshal(&r); err != nil || r.Status == "error" && r.EValue == "" {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		f.Until(id)
		if r.Status == "ok" || r.EName == "ReplyLost" {
			f.Executed(after, "ok")
		} else { // ipykernel itself replied with an error
			f.Executed(after, "aborted")
		}
		f.Until(after)
		if r, text := f.Run("print('alive')"); r.Status != "ok" || text != "alive\n" {
			t.Errorf("%s, afterwards: %+v %q", name, r, text)
		}
	}
}

// Ensure two requests with one ID are both answered, as by ipykernel, and that the check for
// lost messages handles them.
func TestSameID(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	s := wire.NewSigner(f.Conn.Key)
	for _, code := range []string{"import time; time.sleep(1); print('first')", "print('second')"} {
		f.SendRaw(
			s.MakeRequest("same", "execute_request", wire.ExecuteRequest{Code: code, UserExpressions: map[string]any{}}))
	}
	complete := f.Send("complete_request", map[string]any{"code": "%toy f", "cursor_pos": 6})
	f.Reply("complete_reply", complete)
	now := f.Execute("%toy lines 1 0 --now")
	f.Executed(now, "ok")
	f.Executed("same", "ok")
	f.Executed("same", "ok")
	f.Until(now)
	text := f.Text(f.Until("same")) + f.Text(f.Until("same"))
	if text != "first\nsecond\n" {
		t.Errorf("printed %q", text)
	}
	interrupt := f.SendControl("interrupt_request", map[string]any{})
	f.ReplyControl("interrupt_reply", interrupt)
	f.Until(interrupt)
	f.NothingLeft()
}

// Ensure a request of ten thousand frames is answered.
func TestManyFrames(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	frames := wire.NewSigner(f.Conn.Key).MakeRequest("frames", "execute_request",
		wire.ExecuteRequest{Code: "1", UserExpressions: map[string]any{}})
	for range 10_000 {
		frames = append(frames, []byte("b"))
	}
	f.SendRaw(frames)
	f.Executed("frames", "ok")
	f.Until("frames")
	f.NothingLeft()
}

// Ensure a child that keeps aborting after an interrupt is made to stop: the cell that reveals
// it is lost, the next one runs, and the ticks of matched cells are made up for.
func TestAbortsForever(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	const aborts = "import threading; threading.Timer(0.2, lambda: setattr(get_ipython().kernel, '_aborting', " +
		"True)).start()"
	f.Run(aborts)
	f.Run("%toy lines 1 500") // until the child aborts
	shows := f.Execute("1")
	f.Reply("execute_reply", shows)
	f.Until(shows)
	if r, text := f.Run("print(len(In))"); r.Status != "ok" || text != "4\n" {
		t.Errorf("%+v %q", r, text)
	}
	f.Run(aborts)
	f.Run("%toy lines 1 500")
	f.Run("%toy lines 1 500") // its tick is aborted
	if r, _ := f.Run("1"); r.Status != "ok" {
		t.Errorf("%+v", r)
	}
}

// Ensure a magic is counted in Python although ipykernel lost the reply of the hidden request.
func TestLostTick(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	f.Run(`k = get_ipython().kernel
run = k.do_execute
async def lose(**request):
    if "store_inputs" not in request["code"]:
        return await run(**request)
    del k.do_execute
    raise KeyboardInterrupt
k.do_execute = lose`)
	f.Run("%toy lines 1 0")
	if r, text := f.Run("print(len(In), In[2])"); r.ExecutionCount != 3 || text != "4 %toy lines 1 0\n" {
		t.Errorf("%+v %q", r, text)
	}
	f.NothingLeft()
}
