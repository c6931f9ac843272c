package magics

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

const defaultLines = 100

// logs shows what tasks wrote. With -f an interrupt ends the following only.
func (s *Session) logs(ctx context.Context, inv *invocation) (Value, error) {
	m, err := s.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	req := &clusterpb.LogsRequest{
		Run: int32(inv.Count("run", 0)), Last: int32(inv.Count("lines", defaultLines)), Follow: inv.Has("follow"), Task: inv.Text("task"), Grep: inv.Text("grep"),
	}
	if given := inv.Text("since"); given != "" {
		at, err := parseSince(given, time.Now())
		if err != nil {
			return nil, usagef(inv.Verb, "--since: %v", err)
		}
		req.SinceUnixNano = at.UnixNano()
		if !inv.Has("lines") {
			req.Last = 0
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.client.Logs(ctx, req)
	if err != nil {
		return nil, answered(err)
	}
	updates, stop := receive(stream.Recv)
	defer stop()
	defer cancel()
	p := &printer{out: inv.out, say: s.say}
	defer p.close()
	written := 0
	for {
		select {
		case <-inv.out.Interrupts():
			return nil, nil
		case u := <-updates:
			switch {
			case errors.Is(u.err, io.EOF):
				if written == 0 && !req.GetFollow() {
					inv.out.Stdout(noLines(req) + "\n")
				}
				return nil, nil
			case u.err != nil:
				return nil, answered(u.err)
			}
			if gap := u.msg.GetGap(); gap != "" {
				p.put(false, "… "+gap+"\n")
			}
			written += len(u.msg.GetLines())
			p.lines(u.msg.GetLines())
			p.flush()
		}
	}
}

func noLines(req *clusterpb.LogsRequest) string {
	if req.GetGrep() != "" || req.GetTask() != "" || req.GetSinceUnixNano() > 0 {
		return "no lines match"
	}
	return "no lines yet"
}
