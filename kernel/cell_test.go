package kernel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// TestFlush: text that the caller has gathered is sent at once, but not more often than other text.
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &Kernel{signer: wire.NewSigner("key")}
		k.iopub = &zmtp.XPub{}
		c := &Cell{k: k, msg: &wire.Message{Frames: make([][]byte, 6)}}
		waits := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.text.Len() > 0
		}
		for range 3 {
			c.Flush() // has nothing to send
			c.Stdout("one\n")
			if !waits() {
				t.Fatal("text is sent before the burst has ended")
			}
			if c.Flush(); waits() {
				t.Fatal("a burst waits")
			}
			c.Stdout("two\n")
			if c.Flush(); !waits() {
				t.Fatal("two messages in one moment")
			}
			time.Sleep(gatherTime)
			synctest.Wait()
			if waits() {
				t.Fatal("text is not sent")
			}
			time.Sleep(gatherTime)
		}
	})
}
