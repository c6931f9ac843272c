package zmtp

import (
	"iter"
	"net"
)

// batchBytes limits the size of one write.
const batchBytes = 1 << 20

// write sends queued entries until the peer disconnects.
func (l *listener) write(p *peer) {
	w := writer{nc: p.nc, seal: p.queue.seal, note: l.opt.Note}
	var batch []entry
	for {
		select {
		case <-p.queue.filled:
		case <-p.gone:
			return
		}
		batch = p.queue.take(batch[:0], batchBytes)
		err := w.write(batch)
		p.queue.done(batch)
		if err != nil {
			p.drop()
			return
		}
	}
}

// writer writes entries to one peer.
type writer struct {
	nc   net.Conn
	seal *sealer // nil for a peer without encryption
	note func(Lost) Message
	buf  []byte
}

func (w *writer) write(batch []entry) error {
	if w.seal != nil {
		return w.writeSealed(batch)
	}
	var bufs net.Buffers
	bufs, w.buf = encode(batch, w.buf[:0], w.note)
	_, err := bufs.WriteTo(w.nc)
	return err
}

// writeSealed encrypts and writes entries, at most about one frame or batchBytes at a time:
// each peer has a copy of its own of what it is sent, but not of more.
func (w *writer) writeSealed(batch []entry) error {
	w.buf = w.buf[:0]
	for _, e := range batch {
		w.buf = append(w.buf, e.encoded...)
		for flags, body := range e.frames(w.note) {
			w.buf = w.seal.appendFrame(w.buf, flags, body)
			if len(w.buf) < batchBytes {
				continue
			}
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

// flush writes the buffer, and releases it if it is large.
func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.nc.Write(w.buf)
	w.buf = w.buf[:0]
	if cap(w.buf) > 2*batchBytes {
		w.buf = nil
	}
	return err
}

// frames yields the flags and bodies of what an entry is sent as; none for encoded bytes.
func (e entry) frames(note func(Lost) Message) iter.Seq2[byte, []byte] {
	return func(yield func(byte, []byte) bool) {
		m := e.message
		switch {
		case e.command != nil:
			yield(flagCommand, e.command)
			return
		case e.lost != nil:
			m = note(*e.lost)
		}
		for i, f := range m {
			if !yield(moreFlag(m, i), f) {
				return
			}
		}
	}
}

// encode prepares entries for one writev: headers in one buffer, bodies without a copy. Small
// bodies are copied next to their headers, because a vector entry costs more.
func encode(batch []entry, heads []byte, note func(Lost) Message) (net.Buffers, []byte) {
	const small = 2 << 10
	type cut struct {
		at   int // offset in heads after which a body that was not copied follows
		body []byte
	}
	var cuts []cut
	for _, e := range batch {
		heads = append(heads, e.encoded...)
		for flags, body := range e.frames(note) {
			heads = appendHeader(heads, flags, len(body))
			if len(body) <= small {
				heads = append(heads, body...)
			} else {
				cuts = append(cuts, cut{len(heads), body})
			}
		}
	}
	bufs := make(net.Buffers, 0, 2*len(cuts)+1)
	from := 0
	for _, c := range cuts {
		bufs = append(bufs, heads[from:c.at], c.body)
		from = c.at
	}
	if from < len(heads) {
		bufs = append(bufs, heads[from:])
	}
	return bufs, heads
}
