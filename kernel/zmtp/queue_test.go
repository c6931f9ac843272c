package zmtp

import "testing"

// Ensure answers to PING that a peer does not read do not accumulate.
func TestUnreadCommands(t *testing.T) {
	t.Parallel()
	q := newQueue(defaultQueueSoft, defaultQueueHard)
	for range 100_000 {
		if err := q.putCommand(make([]byte, 20)); err != nil {
			t.Fatal(err)
		}
	}
	if q.bytes > 2*commandsBelow {
		t.Errorf("%d bytes are queued", q.bytes)
	}
}
