package panel

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/session"
)

// Limits of lines in a message: a longer line is cut, of a burst the middle is left out and can
// be fetched by page.
const (
	mostLines  = 1000
	mostColumn = 4000 // characters of a line
	burstEvery = 250 * time.Millisecond
)

// request returns the driver's request for a message about lines.
func (m message) request() (*clusterpb.LogsRequest, error) {
	req := &clusterpb.LogsRequest{
		Run: m.Run, Task: m.Task, Last: max(1, min(m.Last, mostLines)), Before: m.Before, Grep: pattern(m.Text),
	}
	if len(m.After) > 0 {
		if err := json.Unmarshal(m.After, &req.After); err != nil {
			return nil, errtext.Fault("the panel sent %.40q, which is no position among lines", m.After)
		}
		req.AfterRun = m.Run
	}
	return req, nil
}

// pattern returns the pattern that finds a text, in any case unless it has capitals.
func pattern(text string) string {
	switch {
	case text == "":
		return ""
	case strings.ToLower(text) == text:
		return "(?i)" + regexp.QuoteMeta(text)
	}
	return regexp.QuoteMeta(text)
}

// page answers a page of the lines that a run has stored, the last ones before a position.
func (c *comm) page(ctx context.Context, m message) (reply, error) {
	req, err := m.request()
	if err != nil {
		return nil, err
	}
	lines, gaps := []clusterpb.LineJSON{}, []string{}
	err = c.on(ctx, m, func(ctx context.Context, h *session.Handle) error {
		stream, err := h.Client.Logs(ctx, req)
		for err == nil {
			var r *clusterpb.LinesReply
			if r, err = stream.Recv(); err != nil {
				break
			}
			lines = append(lines, convert(r.GetLines())...)
			if r.GetGap() != "" {
				gaps = append(gaps, r.GetGap())
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return h.Explain(err)
	})
	return reply{"run": m.Run, "lines": lines, "gap": strings.Join(gaps, "; ")}, err
}

func convert(lines []*clusterpb.Line) []clusterpb.LineJSON {
	out := make([]clusterpb.LineJSON, 0, len(lines))
	for _, l := range lines {
		out = append(out, l.ForJSON(mostColumn))
	}
	return out
}

// burst gathers lines between two messages.
type burst struct {
	run     int32
	lines   []clusterpb.LineJSON
	skipped int
	gap     string
}

func (b *burst) add(r *clusterpb.LinesReply) {
	if r.GetRun() != 0 {
		b.run = r.GetRun()
	}
	if r.GetGap() != "" {
		b.gap = r.GetGap()
	}
	b.lines = append(b.lines, convert(r.GetLines())...)
	if over := len(b.lines) - mostLines; over > 0 { // the panel shows the newest
		b.skipped += over
		b.lines = append([]clusterpb.LineJSON{}, b.lines[over:]...)
	}
}

// follow sends the last lines of a run, then new ones until it has ended.
func (c *comm) follow(ctx context.Context, m message) {
	req, err := m.request()
	if err == nil {
		err = c.followLines(ctx, m, req)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.fail(m, err)
	default:
		c.send(m.answered(
			reply{"type": "lines", "run": m.Run, "lines": []clusterpb.LineJSON{}, "skipped": 0, "gap": "", "over": true}))
	}
}

func (c *comm) followLines(ctx context.Context, m message, req *clusterpb.LogsRequest) error {
	h, release, err := c.Session.Look(ctx, m.Cluster)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	req.Follow = true
	var recv func() (*clusterpb.LinesReply, error)
	updates, stop := session.Receive(func() (*clusterpb.LinesReply, error) {
		if recv == nil {
			stream, err := h.Client.Logs(ctx, req)
			if err != nil {
				return nil, err
			}
			recv = stream.Recv
		}
		return recv()
	})
	defer stop()
	defer cancel()
	b := burst{run: m.Run}
	tick := time.NewTicker(burstEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			b = c.sendBurst(m, b)
		case u := <-updates:
			if u.Err != nil {
				c.sendBurst(m, b)
				if errors.Is(u.Err, io.EOF) {
					return nil
				}
				return h.Explain(u.Err)
			}
			b.add(u.Msg)
			if u.Msg.GetKeptSent() { // what is stored is shown at once
				b = c.sendBurst(m, b)
			}
		}
	}
}

// sendBurst sends what was gathered, and returns the next burst.
func (c *comm) sendBurst(m message, b burst) burst {
	if len(b.lines) > 0 || b.gap != "" {
		c.send(m.answered(reply{"type": "lines", "run": b.run, "lines": b.lines, "skipped": b.skipped, "gap": b.gap}))
	}
	return burst{run: b.run}
}
