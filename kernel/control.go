package kernel

import (
	"context"
	"os/exec"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

func (k *Kernel) controlLoop() {
	for {
		m, ok := k.receive(k.control, "control")
		if !ok {
			return
		}
		switch m.Header.MsgType {
		case "interrupt_request":
			k.status(m.RawHeader(), "busy")
			k.interrupt()
			k.control.Send(k.signer.Make(m.Identities(), "interrupt_reply", m.RawHeader(), map[string]any{"status": "ok"}))
			k.idle(m.RawHeader())
		case "shutdown_request":
			k.shutdown(m, k.control.Send)
		default:
			k.pass(controlChannel, m)
		}
	}
}

// interrupt interrupts the concurrent cells if there are any, else the matched cell that has
// its turn, else the child if it is busy. If nothing runs, it does nothing: ipykernel ignores
// such an interrupt too, but ends if an earlier one arrived while it changed its signal
// handler.
func (k *Kernel) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case len(k.concurrent) > 0:
		for c := range k.concurrent {
			c.interrupt()
		}
	case k.running != nil:
		k.running.interrupt()
	case k.child != nil && (len(k.outstanding) > 0 || len(k.childBusy) > 0):
		k.child.interrupt()
	}
}

// childGrace is how long the child may take to exit; the reply must be sent well before
// jupyter_client's timeout (5 s).
const childGrace = 1500 * time.Millisecond

// shutdown answers a shutdown_request and ends the kernel.
func (k *Kernel) shutdown(m *wire.Message, send func(zmtp.Message)) {
	var req wire.Shutdown
	if err := m.Unmarshal(&req); err != nil {
		k.log.Warn("a shutdown request is malformed; the kernel ends without restart", "err", err)
	}
	k.status(m.RawHeader(), "busy")
	k.mu.Lock()
	if k.running != nil {
		k.running.interrupt()
	}
	child := k.child
	again := k.ending
	k.ending = true
	if child != nil {
		child.send(outgoing{controlChannel, k.signer.MakeRequest(hiddenPrefix+wire.NewID(), "shutdown_request", wire.Shutdown{
			Restart: req.Restart,
		})})
	}
	k.mu.Unlock()
	k.work.Go(func() {
		told := make(chan struct{})
		go func() {
			defer close(told)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), shutdownTimeout)
			defer cancel()
			if !again {
				k.cfg.Interceptor.Shutdown(ctx, req.Restart)
			}
		}()
		if child != nil {
			select {
			case <-child.dead:
			case <-time.After(childGrace):
			}
		}
		reply := wire.Shutdown{Status: "ok", Restart: req.Restart}
		send(k.signer.Make(m.Identities(), "shutdown_reply", m.RawHeader(), reply))
		k.publish("shutdown_reply", m.RawHeader(), reply)
		k.status(m.RawHeader(), "idle")
		<-told
		k.end(errEnd)
	})
}

// stdinLoop forwards answers to the child, which alone asks for input.
func (k *Kernel) stdinLoop() {
	for {
		m, ok := k.receive(k.stdin, "stdin")
		if !ok {
			return
		}
		k.forward(stdinChannel, m.Frames)
	}
}

// exitWords describes how a child ended.
func exitWords(cmd *exec.Cmd) string {
	if cmd.ProcessState == nil {
		return "ended"
	}
	return cmd.ProcessState.String()
}
