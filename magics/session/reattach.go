package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/render"
)

// AttachedTo is the prefix of each line about a cluster that the session attached to.
const AttachedTo = "attached to "

// AttachedLine returns the line about a cluster that the session attached to, with its state.
func AttachedLine(st *clusterpb.ClusterStatus) string {
	return AttachedTo + "cluster " + st.GetName() + ": " + render.ClusterWords(st)
}

// reattach attaches to the clusters of the last kernel of this owner, and collects lines about
// them and about other clusters to attach to.
func (s *State) reattach(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, RecoverTimeout)
	defer cancel()
	infos, err := s.Options.Connector.List(ctx)
	if err != nil {
		return // the first verb that needs the list returns the error
	}
	var lines []string
	for _, i := range infos {
		if i.Owner == s.Options.Owner {
			lines = append(lines, s.reattachOne(ctx, i))
			continue
		}
		if line := s.unheldLine(ctx, i); line != "" {
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

func (s *State) reattachOne(ctx context.Context, i ClusterInfo) string {
	client, err := s.Options.Connector.Recover(ctx, i.Name)
	if err != nil {
		return fmt.Sprintf("cluster %s cannot be attached again: %v", i.Name, s.Explain(i.Name, err))
	}
	m := s.adopt(i.Name, client, true)
	st, err := m.Status(ctx)
	if err != nil {
		return fmt.Sprintf("cluster %s is attached, but its state is unknown (%s asks again): %v", i.Name,
			s.Say("status -c "+i.Name), s.Explain(i.Name, err))
	}
	return AttachedLine(st)
}

// unheldLine returns a line about a cluster without clients; "" for others.
func (s *State) unheldLine(ctx context.Context, i ClusterInfo) string {
	say := "; " + s.Say("attach "+i.Name) + " attaches to it"
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

// Announcement returns, once, the lines of reattach. It waits for them for 2 s at most.
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

// ShortStatus returns the state of a live cluster in a few words.
func (s *State) ShortStatus(ctx context.Context, name string) string {
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
