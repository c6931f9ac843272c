package zmtp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	zmq "github.com/go-zeromq/zmq4"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// Ensure a subscriber that does not read loses only droppable messages, and gets a note, and
// that others lose nothing.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	note := func(l zmtp.Lost) zmtp.Message {
		return zmtp.Message{[]byte("note"), []byte(fmt.Sprint(l.Messages))}
	}
	subscribed := make(chan string, 2)
	x, err := zmtp.ListenXPub("tcp://127.0.0.1:0", zmtp.Options{QueueSoft: 1 << 20, Note: note},
		func(topic []byte) { subscribed <- string(topic) })
	if err != nil {
		t.Fatal(err)
	}
	slow := raw(t, x.Addr())
	shake(t, slow, "SUB")
	if _, err := slow.Write([]byte("\x00\x01\x01")); err != nil {
		t.Fatal(err)
	}
	<-subscribed
	const n = 400
	payload := make([]byte, 100<<10)
	for i := range n {
		x.Send(zmtp.Message{[]byte("stream"), payload}, true)
		x.Send(zmtp.Message{[]byte("status"), fmt.Append(nil, i)}, false)
	}
	read := make(chan error, 1)
	counts := map[string]int{}
	go func() { read <- count(slow, counts) }()
	if err := x.Close(patience); err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	if counts["status"] != n || counts["note"] == 0 || counts["stream"] >= n {
		t.Errorf("of %d each: %v", n, counts)
	}
}

// count reads two-frame messages until EOF.
func count(r io.Reader, counts map[string]int) error {
	frame := func() ([]byte, error) {
		h := make([]byte, 2)
		if _, err := io.ReadFull(r, h); err != nil {
			return nil, err
		}
		n := uint64(h[1])
		if h[0]&2 != 0 {
			rest := make([]byte, 7)
			if _, err := io.ReadFull(r, rest); err != nil {
				return nil, err
			}
			n = binary.BigEndian.Uint64(append([]byte{h[1]}, rest...))
		}
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	for {
		topic, err := frame()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := frame(); err != nil {
			return err
		}
		counts[string(topic)]++
	}
}

// Ensure subscriptions filter and can be cancelled, and that Close delivers the last message.
func TestXPubWithAnotherImplementation(t *testing.T) {
	t.Parallel()
	subscribed := make(chan string, 4)
	x, err := zmtp.ListenXPub("tcp://127.0.0.1:0", zmtp.Options{}, func(topic []byte) { subscribed <- string(topic) })
	if err != nil {
		t.Fatal(err)
	}
	s := zmq.NewSub(t.Context())
	defer s.Close()
	if err := s.Dial("tcp://" + x.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := s.SetOption(zmq.OptionSubscribe, "a"); err != nil {
		t.Fatal(err)
	}
	if topic := <-subscribed; topic != "a" {
		t.Errorf("topic %q", topic)
	}
	x.Send(zmtp.Message{[]byte("b"), []byte("not wanted")}, false)
	x.Send(zmtp.Message{[]byte("ab"), []byte("wanted")}, false)
	if err := x.Close(patience); err != nil {
		t.Error(err)
	}
	if m, err := s.Recv(); err != nil || string(m.Frames[1]) != "wanted" {
		t.Errorf("got %v %v", m, err)
	}
}
