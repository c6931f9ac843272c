package kernel

import (
	"encoding/json"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// Comm is a comm that the Interceptor handles: messages to and from one widget or panel of a
// client, served concurrently with cells. The Interceptor sets the callbacks in OpenComm; they
// are called on the shell goroutine and must not block.
type Comm struct {
	// Static after construction.
	ID, Target string
	k          *Kernel
	parent     []byte

	OnMessage func(data json.RawMessage) // a JSON object
	OnClose   func()
}

// Send sends data, which must be a JSON object, to the client. It never blocks. Any goroutine may
// call it.
func (c *Comm) Send(data any) {
	c.k.publish("comm_msg", c.parent, wire.CommMessage{CommID: c.ID, Data: data})
}

// Close closes the comm from the kernel's side.
func (c *Comm) Close() {
	c.k.mu.Lock()
	_, open := c.k.comms[c.ID]
	delete(c.k.comms, c.ID)
	c.k.mu.Unlock()
	if open {
		c.k.publish("comm_close", c.parent, wire.CommMessage{CommID: c.ID, Data: struct{}{}})
	}
}

// maxComms limits the number of comms that reloaded pages have left open.
const maxComms = 256

// comm handles messages of the Interceptor's comms; false leaves them to the child. It sends no
// busy or idle, because a client would take the idle for that of a running cell.
func (k *Kernel) comm(m *wire.Message) bool {
	if m.Header.MsgType == "comm_open" {
		return k.openComm(m)
	}
	var data wire.CommData
	if m.Unmarshal(&data) != nil {
		return false
	}
	k.mu.Lock()
	c := k.comms[data.CommID]
	if c != nil && m.Header.MsgType == "comm_close" {
		delete(k.comms, data.CommID)
	}
	k.mu.Unlock()
	switch {
	case c == nil:
		return false
	case m.Header.MsgType == "comm_close":
		c.closed()
	default:
		c.message(data.Data)
	}
	return true
}

func (k *Kernel) openComm(m *wire.Message) bool {
	var open wire.CommOpen
	if m.Unmarshal(&open) != nil || open.CommID == "" {
		return false
	}
	c := &Comm{ID: open.CommID, Target: open.Target, k: k, parent: m.RawHeader()}
	if !k.cfg.Interceptor.OpenComm(c) {
		return false
	}
	k.mu.Lock()
	full := len(k.comms) >= maxComms
	if !full {
		k.comms[c.ID] = c
	}
	k.mu.Unlock()
	if full {
		k.publish("comm_close", m.RawHeader(), wire.CommMessage{CommID: open.CommID, Data: struct{}{}})
		c.closed()
	}
	return true
}

// addComms adds the Interceptor's comms to the child's answer to comm_info_request.
func (k *Kernel) addComms(frames [][]byte) [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.comms) == 0 {
		return frames
	}
	m, err := wire.Decode(frames)
	if err != nil {
		return frames
	}
	var info struct {
		Status string                       `json:"status"`
		Comms  map[string]map[string]string `json:"comms"`
	}
	if m.Unmarshal(&info) != nil {
		return frames
	}
	if info.Comms == nil {
		info.Comms = map[string]map[string]string{}
	}
	for id, c := range k.comms {
		info.Comms[id] = map[string]string{"target_name": c.Target}
	}
	return k.signer.Resign(m, info)
}
