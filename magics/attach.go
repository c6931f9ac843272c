package magics

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// attach takes up a cluster that lives already, starting a driver where it died.
func (inv *invocation) attach(ctx context.Context) (Value, error) {
	announced := inv.session.Announcement(ctx)
	st, err := inv.attachTo(ctx)
	about := "cluster " + st.GetName() + ": "
	for line := range strings.Lines(announced) {
		if err != nil || !strings.HasPrefix(strings.TrimPrefix(line, attachedTo), about) {
			inv.out.Stdout(line)
		}
	}
	if err != nil {
		return nil, err
	}
	inv.out.Stdout(attachedLine(st) + "\n")
	return clusterValue(st), nil
}

func (inv *invocation) attachTo(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	if len(inv.Words) > 0 {
		if inv.Has("cluster") {
			return nil, usagef(inv.Verb, "the name is given twice")
		}
		v, err := inv.Verb.option("cluster").read(inv.Words[0])
		if err != nil {
			return nil, usagef(inv.Verb, "%v", err)
		}
		inv.values["cluster"] = []value{v}
	}
	m, err := inv.session.pickOrRecover(ctx, inv)
	if err != nil {
		return nil, err
	}
	st, err := m.status(ctx)
	if err != nil {
		return nil, answered(err)
	}
	inv.session.mu.Lock()
	inv.session.use(m.name)
	// Nobody else holds it: this notebook's end is its end from now on.
	m.owned = m.owned || st.GetClients() <= 1
	inv.session.mu.Unlock()
	return st, nil
}

const attachedTo = "attached to "

func attachedLine(st *clusterpb.ClusterStatus) string {
	return attachedTo + "cluster " + st.GetName() + ": " + clusterWords(st)
}

// takeUp attaches to what the last kernel of this owner left, and notes what else
// attach would find.
func (s *Session) takeUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	infos, err := s.opt.Connector.List(ctx)
	if err != nil {
		return // the first verb that needs the list says why
	}
	var lines []string
	for _, i := range infos {
		if i.Owner == s.opt.Owner {
			lines = append(lines, s.takeUpOne(ctx, i))
			continue
		}
		if line := s.free(ctx, i); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return
	}
	s.mu.Lock()
	s.announce = strings.Join(lines, "\n") + "\n"
	s.mu.Unlock()
}

func (s *Session) takeUpOne(ctx context.Context, i ClusterInfo) string {
	client, err := s.opt.Connector.Recover(ctx, i.Name)
	if err != nil {
		return fmt.Sprintf("cluster %s cannot be taken up again: %v", i.Name, err)
	}
	m := s.adopt(i.Name, client, true)
	st, err := m.status(ctx)
	if err != nil {
		return fmt.Sprintf("cluster %s does not answer: %s", i.Name, plainError(err))
	}
	return attachedLine(st)
}

// free is the line for a cluster that no notebook holds.
func (s *Session) free(ctx context.Context, i ClusterInfo) string {
	say := "; " + s.say("attach "+i.Name) + " takes it up"
	if !i.Live {
		return "cluster " + i.Name + ": its driver died" + say
	}
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	client, err := s.opt.Connector.Dial(ctx, i.Name)
	if err != nil {
		return ""
	}
	defer closeClient(client)
	st, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil || st.GetClients() > 0 {
		return ""
	}
	return "cluster " + i.Name + ": " + clusterWords(st) + say
}

func closeClient(c clusterpb.ControlClient) {
	if c, ok := c.(io.Closer); ok {
		_ = c.Close() // nothing is left to say over it
	}
}

// Announcement is, once, what the kernel's start found: a line a cluster. It waits
// shortly for the search to end.
func (s *Session) Announcement(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	select {
	case <-s.began:
	case <-ctx.Done():
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.announce
	s.announce = ""
	return text
}

// greet prints the announcement into the first cell. A cell that begins with attach
// does so itself: it may be about to say the same.
func (s *Session) greet(ctx context.Context, out Output) {
	if text := s.Announcement(ctx); text != "" {
		out.Stdout(text)
	}
}
