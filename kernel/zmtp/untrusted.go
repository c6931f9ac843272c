package zmtp

import (
	"errors"
	"fmt"
	"sync"
)

// ErrUntrusted is a peer that sends more than it may before it has shown that it is trusted.
var ErrUntrusted = errors.New("zmtp: too much from a peer that is not trusted yet")

// Budget bounds the memory that peers which are not trusted hold together, over all sockets whose
// Options name it. Its methods may be called from any goroutine.
type Budget struct {
	mu   sync.Mutex
	left int64 // guarded by mu
}

// NewBudget makes a budget of so many bytes.
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

// untrustedFree is what each peer may hold without a share of the budget, so that large messages
// of strangers do not keep out a client's first small one.
const untrustedFree = 64 << 10

// allowance is what one peer holds of the message that it is sending, and of a command among its frames.
type allowance struct {
	trusted bool
	most    int64 // for a message of a peer that is not trusted
	budget  *Budget

	held     int64 // of this message
	reserved int64 // of the budget
}

// take counts n more bytes of the message, before they are allocated.
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
			return fmt.Errorf("%w: such peers hold too much together", ErrUntrusted)
		}
		a.reserved += more
	}
	return nil
}

// release forgets the message, which was handed on or given up.
func (a *allowance) release() { a.releaseTo(0) }

// releaseTo goes back to an earlier value of held, and gives back the share of the budget that was
// taken since.
func (a *allowance) releaseTo(held int64) {
	a.held = held
	if excess := a.reserved - max(held-untrustedFree, 0); excess > 0 {
		a.budget.give(excess)
		a.reserved -= excess
	}
}
