package kernel

import (
	"strings"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// pass sends a request to the child. Where there will be no child any more it is
// answered here, so that no client waits for ever and matched cells go on.
func (k *Kernel) pass(to channel, m *wire.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	reply, isRequest := strings.CutSuffix(m.Header.MsgType, "_request")
	if k.broken == "" || !isRequest {
		k.forwardLocked(to, m.Frames)
		return
	}
	send := k.shell.Send
	if to == controlChannel {
		send = k.control.Send
	}
	k.answerBroken(m, reply+"_reply", send)
}

// answerBroken answers for a child that does not come up. Caller holds mu.
func (k *Kernel) answerBroken(m *wire.Message, msgType string, send func(zmtp.Message)) {
	var content any = wire.ExecuteReply{
		Status: "error", EName: pythonDied, EValue: k.broken, Traceback: []string{pythonDied + ": " + k.broken},
	}
	if msgType == "kernel_info_reply" {
		content = map[string]any{
			"status": "ok", "protocol_version": wire.Version, "implementation": "tfcluster", "implementation_version": "",
			"language_info": map[string]any{"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py"},
			"banner":        k.cfg.Banner + "\n" + k.broken, "help_links": []any{},
		}
	}
	k.status(m.RawHeader(), "busy")
	send(k.signer.Make(m.Identities(), msgType, m.RawHeader(), content))
	k.status(m.RawHeader(), "idle")
	k.busyAgain()
}

// refuseLost answers the cells that a child took with it, and aborts those behind them.
// Cells that wait for a child to come go on waiting. Caller holds mu.
func (k *Kernel) refuseLost(why string) {
	var kept, doomed []*request
	lost := false
	for _, r := range k.outstanding {
		switch {
		case !r.given && k.broken == "":
			kept = append(kept, r)
		case r.seen&replied != 0: // only its end is missing
			doomed = append(doomed, r.doomed...)
			k.status(r.msg.RawHeader(), "idle")
		default:
			if !lost && r.exec.Stores() {
				k.count++ // the one that ran
			}
			lost = true
			doomed = append(doomed, r.doomed...)
			k.refuse(r, why)
		}
	}
	k.outstanding = kept
	if lost && len(kept) == 0 {
		doomed, k.queue = append(doomed, k.queue...), nil
	}
	k.abort(doomed)
}

// refuseWaiting answers the requests that waited for a child; cells are left to
// refuseLost. Caller holds mu.
func (k *Kernel) refuseWaiting() {
	waiting := k.waiting
	k.waiting = nil
	for _, o := range waiting {
		m, err := wire.Decode(o.frames)
		if err != nil || hidden(m.Header.MsgID) {
			continue
		}
		reply, isRequest := strings.CutSuffix(m.Header.MsgType, "_request")
		switch {
		case !isRequest || o.to == stdinChannel:
		case o.to == shellChannel && reply == "execute" && m.Header.Subshell == "": // outstanding
		case o.to == controlChannel:
			k.answerBroken(m, reply+"_reply", k.control.Send)
		default:
			k.answerBroken(m, reply+"_reply", k.shell.Send)
		}
	}
}
