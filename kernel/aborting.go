package kernel

import (
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// repairLimit is how long cells wait for the answer to endAborting.
const repairLimit = 2 * time.Second

// endAborting has the child abort no more cells. An interrupt that arrives while ipykernel begins
// to abort what is queued behind a failed cell keeps it from ever ending that, and each later cell
// is aborted. Requests on control are not. Caller holds mu.
func (k *Kernel) endAborting() {
	if k.repair != "" {
		return
	}
	k.log.Warn("the child aborts cells that nothing failed before; a request on control ends that")
	id := hiddenPrefix + wire.NewID()
	k.repair = id
	k.forwardLocked(controlChannel, k.signer.MakeRequest(id, "execute_request", wire.ExecuteRequest{
		Code: `__import__("IPython").get_ipython().kernel._aborting = False`, Silent: true, UserExpressions: map[string]any{},
	}))
	time.AfterFunc(repairLimit, func() { k.repaired(id) })
}

// repaired lets the cells go on that waited for the end of endAborting.
func (k *Kernel) repaired(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.repair == id {
		k.repair = ""
		k.pump()
	}
}
