package kernel

import (
	"cmp"
	"fmt"

	"github.com/tfcluster/tfcluster/internal/handshake"
	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// sockets are open while Run runs.
type sockets struct {
	shell, control, stdin, heartbeat *zmtp.Router
	iopub                            *zmtp.XPub
}

// Limits for peers that have not proved that they hold the connection file's key. Clients do
// not sign messages on the heartbeat and IOPub sockets, and send only a few bytes there.
const (
	untrustedBytes = 256 << 20 // for all of them together
	unsignedBytes  = 64 << 10  // for one message on the heartbeat and IOPub sockets
	echoBytes      = 128 << 10 // for heartbeats that one peer does not read
)

// open opens the sockets of the connection file.
func (k *Kernel) open() error {
	var err error
	opt := zmtp.Options{
		Curve: k.conn.curve,
		Refused: func(peer string, err error) {
			k.log.Warn("peer rejected: its connection is closed, other clients of the kernel go on", "peer", peer, "err", err)
		},
		Trusts: k.genuine, Untrusted: zmtp.NewBudget(untrustedBytes),
		Unauthenticated: handshake.NewLimiter(handshake.AtOnce(), handshake.Minimum),
	}
	unsigned := zmtp.Options{
		Curve: opt.Curve, Refused: opt.Refused, Unauthenticated: opt.Unauthenticated, MaxFrame: unsignedBytes,
		MaxMessage: 2 * unsignedBytes,
	}
	beat, pub := unsigned, unsigned
	beat.QueueHard = echoBytes
	pub.Note = k.droppedNote
	router := func(port int, opt zmtp.Options) *zmtp.Router {
		r, rerr := zmtp.ListenRouter(k.conn.endpoint(port), opt)
		err = cmp.Or(err, rerr) // one is enough: the others fail alike
		return r
	}
	k.heartbeat, k.control, k.stdin = router(k.conn.HBPort, beat), router(k.conn.ControlPort, opt),
		router(k.conn.StdinPort, opt)
	shell, serr := zmtp.ServeRouter(k.conn.endpoint(k.conn.ShellPort), opt, k.fromClient)
	k.shell, err = shell, cmp.Or(err, serr)
	x, xerr := zmtp.ListenXPub(k.conn.endpoint(k.conn.IOPubPort), pub, k.welcome)
	k.iopub = x
	if err = cmp.Or(err, xerr); err != nil {
		return fmt.Errorf("open the kernel's sockets: %w; start the kernel again, which chooses other ports", err)
	}
	return nil
}

// genuine reports whether a message is correctly signed and new.
func (k *Kernel) genuine(frames zmtp.Message) bool {
	m, err := wire.Decode(frames)
	return err == nil && k.signer.Genuine(m)
}
