package kernel

import (
	"strings"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// pass sends a request to the child. If no child can be started any more, it answers the
// request itself, so that clients do not wait forever and matched cells still run.
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

// answerBroken answers a request when no child can be started. The caller holds mu.
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

// refuseLost answers the cells of a child that has ended, and aborts those after them. Cells
// that wait for the next child keep waiting. The caller holds mu.
func (k *Kernel) refuseLost(why string) {
	var kept, toAbort []*request
	lost := false
	for _, r := range k.outstanding {
		switch {
		case !r.sent && k.broken == "":
			kept = append(kept, r)
		case r.seen&replied != 0: // only its idle is missing
			toAbort = append(toAbort, r.toAbort...)
			k.status(r.msg.RawHeader(), "idle")
		default:
			if !lost && r.exec.Stores() {
				k.count++ // the cell that was running
			}
			lost = true
			toAbort = append(toAbort, r.toAbort...)
			k.refuse(r, why)
		}
	}
	k.outstanding = kept
	if lost && len(kept) == 0 {
		toAbort, k.queue = append(toAbort, k.queue...), nil
	}
	k.abort(toAbort)
}

// refuseWaiting answers the requests that waited for a child, except cells, which refuseLost
// handles. The caller holds mu.
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
		case o.to == shellChannel && reply == "execute" && m.Header.Subshell == "": // handled by refuseLost
		case o.to == controlChannel:
			k.answerBroken(m, reply+"_reply", k.control.Send)
		default:
			k.answerBroken(m, reply+"_reply", k.shell.Send)
		}
	}
}
