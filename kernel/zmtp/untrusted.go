package zmtp

import (
	"errors"
	"fmt"
	"sync"
)

// ErrUntrusted reports a peer that exceeded a limit before it was trusted.
var ErrUntrusted = errors.New("a peer sent too much before a message with a valid signature")

// Budget limits the memory of all peers that are not trusted, over all sockets with this Budget
// in their Options. Its methods are safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	left int64 // guarded by mu
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

func (b *Budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *Budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

// untrustedFree is the memory that each peer may use without a share of the budget, so that
// large messages of untrusted peers do not block a client's small first message.
const untrustedFree = 64 << 10

// allowance is the memory used by one peer for the message that it is sending, and for a
// command among its frames.
type allowance struct {
	trusted bool
	most    int64 // limit for a message of an untrusted peer
	budget  *Budget

	held     int64 // bytes of this message
	reserved int64 // bytes taken from the budget
}

// take counts n more bytes of the message; it is called before they are allocated.
func (a *allowance) take(n int64) error {
	if a.trusted {
		return nil
	}
	a.held += n
	if a.held > a.most {
		return fmt.Errorf("%w: a message over %d bytes", ErrUntrusted, a.most)
	}
	if more := a.held - untrustedFree - a.reserved; more > 0 {
		if !a.budget.take(more) {
			return fmt.Errorf("%w: all peers without one use too much memory together", ErrUntrusted)
		}
		a.reserved += more
	}
	return nil
}

// release is called when the message was passed on or discarded.
func (a *allowance) release() { a.releaseTo(0) }

// releaseTo resets held to an earlier value and returns the share of the budget that was taken
// since.
func (a *allowance) releaseTo(held int64) {
	a.held = held
	if excess := a.reserved - max(held-untrustedFree, 0); excess > 0 {
		a.budget.give(excess)
		a.reserved -= excess
	}
}
