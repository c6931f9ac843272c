package kerneltest_test

import (
	"testing"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// callback opens comms on the target "loop" and serves their messages until an interrupt, for
// at most a minute.
const callback = `import time
def serve(message):
    try:
        print("up", flush=True)
        time.sleep(60)
        print("not interrupted", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
get_ipython().kernel.comm_manager.register_target("loop", lambda comm, message: comm.on_msg(serve))`

// Ensure an interrupt reaches a widget's callback even if a request on control was processed
// during the callback.
func TestInterruptCallback(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	f.Run(callback)
	f.Until(f.Send("comm_open", map[string]any{"comm_id": "1", "target_name": "loop", "data": map[string]any{}}))
	message := f.Send("comm_msg", map[string]any{"comm_id": "1", "data": map[string]any{}})
	f.Status(message, "busy")
	f.Stream(message, "stdout", "up\n")
	info := f.SendControl("kernel_info_request", map[string]any{})
	f.Until(info)
	f.ReplyControl("kernel_info_reply", info)
	interrupt := f.SendControl("interrupt_request", map[string]any{})
	f.ReplyControl("interrupt_reply", interrupt)
	if text := f.Text(f.Until(message)); text != "interrupted\n" {
		t.Errorf("the callback printed %q", text)
	}
	if r, text := f.Run("print('alive')"); r.Status != "ok" || text != "alive\n" {
		t.Errorf("afterwards: %+v %q", r, text)
	}
}
