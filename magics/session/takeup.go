package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// AttachedTo begins each line about a cluster that was taken up.
const AttachedTo = "attached to "

// AttachedLine says which cluster was taken up, and how it is.
func AttachedLine(st *clusterpb.ClusterStatus) string {
	return AttachedTo + "cluster " + st.GetName() + ": " + render.ClusterWords(st)
}

// takeUp attaches to what the last kernel of this owner left, and notes what else
// attach would find.
func (s *State) takeUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, RecoverTimeout)
	defer cancel()
	infos, err := s.Options.Connector.List(ctx)
	if err != nil {
		return // the first verb that needs the list says why
	}
	var lines []string
	for _, i := range infos {
		if i.Owner == s.Options.Owner {
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

func (s *State) takeUpOne(ctx context.Context, i ClusterInfo) string {
	client, err := s.Options.Connector.Recover(ctx, i.Name)
	if err != nil {
		return fmt.Sprintf("cluster %s cannot be taken up again: %v", i.Name, err)
	}
	m := s.adopt(i.Name, client, true)
	st, err := m.Status(ctx)
	if err != nil {
		return fmt.Sprintf("cluster %s does not answer: %s", i.Name, result.PlainError(err))
	}
	return AttachedLine(st)
}

// free is the line for a cluster that no notebook holds.
func (s *State) free(ctx context.Context, i ClusterInfo) string {
	say := "; " + s.Say("attach "+i.Name) + " takes it up"
	if !i.Live {
		return "cluster " + i.Name + ": its driver died" + say
	}
	ctx, cancel := context.WithTimeout(ctx, quickTimeout)
	defer cancel()
	client, err := s.Options.Connector.Dial(ctx, i.Name)
	if err != nil {
		return ""
	}
	defer closeClient(client)
	st, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil || st.GetClients() > 0 {
		return ""
	}
	return "cluster " + i.Name + ": " + render.ClusterWords(st) + say
}

// Announcement is, once, what the kernel's start found: a line a cluster. It waits
// shortly for the search to end.
func (s *State) Announcement(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, quickTimeout)
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

// Greet prints the announcement into the first cell. A cell that begins with attach
// does so itself: it may be about to say the same.
func (s *State) Greet(ctx context.Context, out render.Output) {
	if text := s.Announcement(ctx); text != "" {
		out.Stdout(text)
	}
}

// Glance is a live cluster in a few words, "" when its driver is slow.
func (s *State) Glance(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, quickTimeout)
	defer cancel()
	m := s.Find(name)
	client := clusterpb.ControlClient(nil)
	if m != nil {
		client = m.Client
	} else {
		c, err := s.Options.Connector.Dial(ctx, name)
		if err != nil {
			return "does not answer"
		}
		defer closeClient(c)
		client = c
	}
	st, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return "does not answer"
	}
	return render.ClusterWords(st)
}
