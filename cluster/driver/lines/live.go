package lines

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Limits of a WebSocket.
const (
	writeLimit   = 10 * time.Second // for the client to take a message in
	pingEvery    = 20 * time.Second
	pongLimit    = 3 * pingEvery   // for a pong after the last one
	readLimit    = 512             // bytes of a message: the client has nothing to send
	closingWrite = time.Second     // for a last message
	closingRead  = 2 * time.Second // for the client's answer to the close message
	messageBytes = 256 << 10       // of the texts in a message, unless it is one longer line
)

// message is what a client gets, except the last message.
type message struct {
	Lines []clusterpb.LineJSON `json:"lines"`
	Gap   string               `json:"gap,omitempty"`
	Run   int32                `json:"run,omitempty"`
	// The lines up to it, which were stored before, have been sent.
	Position map[string]uint64 `json:"position,omitempty"`
}

// live sends the lines of a run over a WebSocket as they come. The default check of gorilla/websocket refuses
// pages of other origins.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{HandshakeTimeout: writeLimit}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	s := &socket{Conn: conn, handler: h}
	ctx, cancel := context.WithCancel(h.closed)
	read := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer cancel()
		defer close(read)
		s.drain()
	})
	work.Go(func() { s.ping(ctx) })
	defer work.Wait()
	defer conn.Close()
	defer cancel()
	// A write that is under way when the handler is closed ends, too.
	defer context.AfterFunc(h.closed, func() { _ = conn.NetConn().SetWriteDeadline(time.Now().Add(closingWrite)) })()

	req, err := request(r.URL.Query())
	over, text, code := false, "", websocket.ClosePolicyViolation
	if err != nil {
		text = err.Error()
	} else if over, err = s.send(ctx, req); err != nil {
		text, _ = explain(err)
		code = websocket.CloseInternalServerErr
	}
	select {
	case <-read: // the client has gone
		return
	default:
	}
	switch {
	case over:
		err, code = s.write(map[string]bool{"over": true}), websocket.CloseNormalClosure
	case h.closed.Err() != nil || text == "":
		err, code = s.write(map[string]string{"error": overText}), websocket.CloseGoingAway
	default:
		err = s.write(map[string]string{"error": text})
	}
	if err != nil {
		return
	}
	if err := conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""),
		time.Now().Add(closingWrite)); err != nil {
		return
	}
	select {
	case <-read:
	case <-time.After(closingRead):
	}
}

// socket is the connection of a client. One goroutine writes messages, another reads.
type socket struct {
	*websocket.Conn
	handler *Handler
}

// drain reads until the connection fails, the client closes it or no pong comes.
func (s *socket) drain() {
	s.SetReadLimit(readLimit)
	extend := func(string) error { return s.SetReadDeadline(time.Now().Add(pongLimit)) }
	s.SetPongHandler(extend)
	if extend("") != nil {
		return
	}
	for {
		if _, _, err := s.NextReader(); err != nil {
			return
		}
	}
}

// ping sends pings until ctx ends.
func (s *socket) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeLimit)) // without its pong, drain ends
		}
	}
}

// send sends the lines; over says that the run has ended and all were sent.
func (s *socket) send(ctx context.Context, req *clusterpb.LogsRequest) (over bool, err error) {
	req.Follow = true
	err = s.handler.source(ctx, req, func(u *clusterpb.LinesReply) error {
		over = over || u.GetOver()
		if u.GetOver() {
			return nil
		}
		lines := u.GetLines()
		for first := true; first || len(lines) > 0; first = false {
			m, n := message{Lines: []clusterpb.LineJSON{}}, 0
			if first {
				m.Gap, m.Run, m.Position = strings.TrimSpace(u.GetHeading()+" "+u.GetGap()), u.GetRun(), u.GetPosition()
			}
			for size := 0; n < len(lines) && (n == 0 || size+len(lines[n].GetText()) <= messageBytes); n++ {
				size += len(lines[n].GetText())
				m.Lines = append(m.Lines, lines[n].ForJSON(0))
			}
			if lines = lines[n:]; n == 0 && m.Gap == "" && m.Run == 0 && m.Position == nil {
				return nil
			}
			if err := s.write(m); err != nil {
				return err
			}
		}
		return nil
	})
	return over, err
}

// write sends a message and waits until the client has taken it in, writeLimit at most.
func (s *socket) write(m any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return err
	}
	limit := writeLimit
	if s.handler.closed.Err() != nil {
		limit = closingWrite
	}
	if err := s.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return s.WriteMessage(websocket.TextMessage, b.Bytes())
}
