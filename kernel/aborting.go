package kernel

import (
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// repairLimit is how long cells wait for the answer to endAborting.
const repairLimit = 2 * time.Second

// endAborting makes the child stop aborting cells. An interrupt that arrives while ipykernel
// begins to abort the cells queued after a failed one prevents it from ending that, so that it
// aborts every later cell. A request on control, which it does not abort, ends that state. The
// caller holds mu.
func (k *Kernel) endAborting() {
	if k.repair != "" {
		return
	}
	k.log.Warn("the notebook's Python aborts cells although no cell failed; a request on control ends that")
	id := hiddenPrefix + wire.NewID()
	k.repair = id
	k.forwardLocked(controlChannel, k.signer.MakeRequest(id, "execute_request", wire.ExecuteRequest{
		Code: `__import__("IPython").get_ipython().kernel._aborting = False`, Silent: true, UserExpressions: map[string]any{},
	}))
	time.AfterFunc(repairLimit, func() { k.repaired(id) })
}

// repaired continues with the cells that waited for endAborting.
func (k *Kernel) repaired(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.repair == id {
		k.repair = ""
		k.pump()
	}
}
