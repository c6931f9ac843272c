package kernel

import "time"

// Run All sends its cells one after another without waiting for replies, each some milliseconds
// after the one before. An error aborts those that the client sent before it could know of it.
// ipykernel aborts what has come in by its error reply, and needs 10 ms or more for a traceback; a
// magic fails in less than 1 ms, when the next cell is not here yet. A cell's date does not tell:
// the next cell of Run All and a program's answer to the error are sent equally soon, and the date
// is of the client's clock. So the error reply waits for the end of the burst. What comes in before
// the reply is out cannot be an answer to it, and is aborted; what comes in later is run.

const (
	// burstGap without another cell is the end of a burst.
	burstGap = 50 * time.Millisecond
	// burstLimit is how long an error reply waits at most.
	burstLimit = time.Second
)

// awaitBurst returns when no cell has come in for burstGap: at once, unless a cell failed as soon
// as it came or others follow it.
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
