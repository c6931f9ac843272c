package kerneltest_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/kernel/kerneltest"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// panicky is an Interceptor whose methods panic.
type panicky struct{ *kerneltest.Toy }

func (panicky) Match(string) kernel.Match { panic("Match") }

func (panicky) Complete(context.Context, string, int) (kernel.Completion, bool) { panic("Complete") }

func (panicky) Inspect(context.Context, string, int) (map[string]any, bool) { panic("Inspect") }

func (panicky) Shutdown(context.Context, bool) { panic("Shutdown") }

func (p panicky) OpenComm(c *kernel.Comm) bool {
	if c.Target == "panics" {
		panic("OpenComm")
	}
	c.OnMessage = func(json.RawMessage) { panic("OnMessage") }
	c.OnClose = func() { panic("OnClose") }
	return c.Target == "toy"
}

// Ensure a panic in the Interceptor costs at most its answer, which Python then gives.
func TestInterceptorPanics(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, panicky{&kerneltest.Toy{}}).Ready()
	if r, text := f.Run("print('runs')"); r.Status != "ok" || text != "runs\n" {
		t.Errorf("%+v %q", r, text)
	}
	for _, kind := range []string{"complete", "inspect"} {
		id := f.Send(kind+"_request", map[string]any{"code": "prin", "cursor_pos": 4})
		f.Reply(kind+"_reply", id)
		f.Until(id)
	}
	f.Send("comm_open", wire.CommOpen{CommID: "taken", Target: "toy", Data: json.RawMessage("{}")})
	f.Send("comm_msg", wire.CommData{CommID: "taken", Data: json.RawMessage("{}")})
	f.Send("comm_close", wire.CommData{CommID: "taken", Data: json.RawMessage("{}")})
	f.Until(f.Send("comm_open", wire.CommOpen{CommID: "left", Target: "panics", Data: json.RawMessage("{}")}))
	if r, _ := f.Run("1"); r.Status != "ok" {
		t.Errorf("%+v", r)
	}
	f.ReplyControl("shutdown_reply", f.SendControl("shutdown_request", wire.Shutdown{}))
}
