package kernel

import (
	"strings"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// pass sends a request to the child. If no child can be started any more, it answers the
// request itself, so that clients do not wait forever and matched cells still run.
func (k *Kernel) pass(to channel, m *wire.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	reply, isRequest := strings.CutSuffix(m.Header.MsgType, "_request")
	switch {
	case !isRequest:
		k.forwardLocked(to, m.Frames)
	case k.broken == "":
		k.passed.add(&passedRequest{msg: m, to: to, sent: k.child != nil})
		k.forwardLocked(to, m.Frames)
	default:
		k.status(m.RawHeader(), "busy")
		k.answerDead(m, reply+"_reply", k.broken, to)
		k.status(m.RawHeader(), "idle")
		k.busyAgain()
	}
}

// answerDead replies to a request that no child can answer.
func (k *Kernel) answerDead(m *wire.Message, msgType, why string, to channel) {
	var content any = wire.ExecuteReply{
		Status: "error", EName: pythonDied, EValue: why, Traceback: []string{pythonDied + ": " + why},
	}
	if msgType == "kernel_info_reply" {
		content = map[string]any{
			"status": "ok", "protocol_version": wire.Version, "implementation": "tfcluster", "implementation_version": "",
			"language_info": map[string]any{
				"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py",
			},
			"banner": k.cfg.Banner + "\n" + why, "help_links": []any{},
		}
	}
	send := k.shell.Send
	if to == controlChannel {
		send = k.control.Send
	}
	send(k.signer.Make(m.Identities(), msgType, m.RawHeader(), content))
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
