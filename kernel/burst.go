package kernel

import "time"

// Run All sends its cells one after another without waiting for replies, a few milliseconds
// apart. An error must abort the cells that the client sent before it could know of the error.
// ipykernel aborts the cells that have arrived by its error reply, and needs 10 ms or more for
// a traceback; a magic fails in less than 1 ms, before the next cell has arrived. The date of a
// cell does not help: the next cell of Run All and a program's answer to the error may follow
// equally fast, and the date is from the client's clock. So the error reply waits for the end
// of the burst. Cells that arrive before the reply is sent cannot be answers to it, and are
// aborted; later cells are run.

const (
	// burstGap without another cell ends a burst.
	burstGap = 50 * time.Millisecond
	// burstLimit is the longest delay of an error reply.
	burstLimit = time.Second
)

// awaitBurst returns when no cell has arrived for burstGap. It returns at once unless a cell
// failed right after its arrival or other cells have followed it.
func (k *Kernel) awaitBurst() {
	for end := time.Now().Add(burstLimit); ; {
		k.mu.Lock()
		wait := time.Until(k.lastCell.Add(burstGap))
		k.mu.Unlock()
		if wait = min(wait, time.Until(end)); wait <= 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-k.ctx.Done():
			return
		}
	}
}
