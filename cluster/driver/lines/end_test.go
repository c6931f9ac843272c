package lines

import (
	"context"
	"errors"
	"io"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// endless is a source that never ends: after its first reply it sends lines if they are given, else it waits.
func endless(lines []*clusterpb.Line) (source Source, ended chan error) {
	ended = make(chan error, 8)
	return func(ctx context.Context, _ *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) (err error) {
		defer func() { ended <- err }()
		if err := send(&clusterpb.LinesReply{Run: 3}); err != nil {
			return err
		}
		for lines != nil {
			if err := send(&clusterpb.LinesReply{Lines: lines}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}, ended
}

func flood() []*clusterpb.Line {
	return []*clusterpb.Line{{Task: "worker:0", Text: strings.Repeat("x", 1<<19)}}
}

// TestClientVanishes: a client that goes without a word, while it reads or while nothing comes, leaves nothing behind.
func TestClientVanishes(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]*clusterpb.Line{"while nothing comes": nil, "in a flood": flood()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, ended := endless(lines)
			s := serve(t, source)
			conn := s.follow(url.Values{"run": {"3"}})
			if m := read(t, conn); m.Run != 3 {
				t.Errorf("the first message is %+v", m)
			}
			if err := conn.NetConn().Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Error("its source has ended without an error")
			}
			s.idle()

			resp := s.get(s.path("lines"))
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Error("the source of its download has ended without an error")
			}
			s.idle()
		})
	}
}

// TestDriverEnds: a client that reads is told why, one that does not read is cut off; a part of a file is not taken
// for all of it.
func TestDriverEnds(t *testing.T) {
	t.Parallel()
	source, ended := endless(nil)
	s := serve(t, source)
	conn := s.follow(nil)
	read(t, conn)
	resp := s.get(s.path("lines"))
	s.Close()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a source has ended without an error")
		}
	}
	if m := read(t, conn); m.Error != overText || m.Over {
		t.Errorf("it is told %+v", m)
	}
	readClose(t, conn, websocket.CloseGoingAway)
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a download that was cut off looks whole: %q", b)
	}
	if code, body := s.text(s.path("lines")); code != 503 || !strings.Contains(body, overText) {
		t.Errorf("after the end: %d %q", code, body)
	}

	source, ended = endless(flood())
	s = serve(t, source)
	conn = s.follow(nil)
	read(t, conn)
	s.Close() // returns, although nobody reads
	if err := <-ended; err == nil {
		t.Error("the source of a client that does not read has ended without an error")
	}
}

// TestRunIsNotOver: a source that ends without the end of the run, or with an error, is told from that.
func TestRunIsNotOver(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		overText: nil, "the cluster's driver ended": status.Error(codes.Aborted, "the cluster's driver ended"),
		"the lines cannot be read: no": errors.New("no"),
	} {
		s := serve(t, func(context.Context, *clusterpb.LogsRequest, func(*clusterpb.LinesReply) error) error { return err })
		conn := s.follow(nil)
		if m := read(t, conn); m.Error != want || m.Over {
			t.Errorf("after %v it is told %+v", err, m)
		}
	}
}

// TestRequest: the source is asked for what the query says.
func TestRequest(t *testing.T) {
	t.Parallel()
	asked := make(chan *clusterpb.LogsRequest, 1)
	s := serve(t, func(_ context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
		asked <- req
		return send(&clusterpb.LinesReply{Run: 3, KeptSent: true, Position: map[string]uint64{"worker:0": 5}, Over: false})
	})
	conn := s.follow(url.Values{"run": {"3"}, "task": {"worker:1"}, "grep": {"^a+"}, "after": {`{"worker:1":12}`}})
	if m := read(t, conn); m.Run != 3 || !reflect.DeepEqual(m.Position, map[string]uint64{"worker:0": 5}) {
		t.Errorf("the position arrives as %+v", m)
	}
	req := <-asked
	if !req.GetFollow() || req.GetRun() != 3 || req.GetTask() != "worker:1" || req.GetGrep() != "^a+" ||
		req.GetAfterRun() != 3 || !reflect.DeepEqual(req.GetAfter(), map[string]uint64{"worker:1": 12}) {
		t.Errorf("it is asked for %v", req)
	}
	s.text(s.path("lines?run=4&task=ps"))
	if req := <-asked; req.GetFollow() || req.GetRun() != 4 || req.GetTask() != "ps" {
		t.Errorf("it is asked for %v", req)
	}
	conn = s.follow(url.Values{"after": {`{"worker:1":12}`}})
	if m := read(t, conn); !strings.Contains(m.Error, "after needs run") {
		t.Errorf("after without a run: %+v", m)
	}
}

// TestClientTalks: a client has nothing to say; what is too long ends the socket.
func TestClientTalks(t *testing.T) {
	t.Parallel()
	source, ended := endless(nil)
	s := serve(t, source)
	conn := s.follow(nil)
	read(t, conn)
	for _, text := range []string{"short", strings.Repeat("x", readLimit+1)} {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err == nil {
		t.Error("it goes on")
	}
	readClose(t, conn, websocket.CloseMessageTooBig)
	s.idle()
}
