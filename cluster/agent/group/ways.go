package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/tfcluster/tfcluster/rdma/collective"
	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// slower is the end of a note about RDMA that is not used.
const slower = "the results are the same, only slower; start --fabric tcp does not try RDMA"

// ways has, for each network, how links are made from its connections. Member.link opens it; Member.join closes it
// after the links.
type ways struct {
	byNetwork map[string]way
	rdma      *transport.Verbs // nil: none
}

// way makes links from connections of one network.
type way struct {
	provider transport.Provider
	region   *transport.Region // the own memory
}

// open registers the own memory with the provider of each network.
func (w *ways) open(config Config, own *memory.Mapping, cfg *collective.Config) error {
	w.byNetwork = map[string]way{}
	add := func(network string, p transport.Provider) error {
		region, err := p.Register(own)
		if err != nil {
			return fmt.Errorf("let the network use the memory of %s: %w", config.Task, err)
		}
		w.byNetwork[network] = way{p, region}
		return nil
	}
	if err := errors.Join(add("unix", transport.SharedMemory{}), add("tcp", transport.TCP{})); err != nil {
		return err
	}
	if config.RDMA == nil || !leadsSome(cfg) {
		return nil
	}
	var err error
	if w.rdma, err = transport.OpenVerbs(*config.RDMA); err == nil {
		err = add("tcp", w.rdma)
	}
	if err != nil {
		text := fmt.Sprintf("collective calls between hosts use TCP, not RDMA by %s: %v; %s", config.RDMA.Device, err, slower)
		config.Log.Warn(text, "task", config.Task)
		config.Note(text)
	}
	return nil
}

// leadsSome reports whether this rank has links to other hosts. One rank of each host has them.
func leadsSome(cfg *collective.Config) bool {
	leads := func(ranks []int) bool { return ranks[0] == cfg.Rank }
	return len(cfg.Hosts) > 1 && slices.ContainsFunc(cfg.Hosts, leads)
}

// connect makes a link from a connection to a member.
func (w *ways) connect(ctx context.Context, config Config, conn net.Conn, name string) (transport.Link, error) {
	way := w.byNetwork[conn.LocalAddr().Network()]
	l, err := way.provider.Connect(ctx, conn, way.region)
	if err != nil {
		return nil, err
	}
	via, without := transport.Via(l)
	config.Log.Info("collective calls are connected", "task", config.Task, "to", name, "by", via)
	if without != nil {
		config.Note(fmt.Sprintf("collective calls with %s use TCP, not RDMA: %v; %s", name, without, slower))
	}
	return l, nil
}

// close frees what the providers hold. All links have been closed.
func (w *ways) close(log *slog.Logger) {
	var errs []error
	for _, way := range w.byNetwork {
		errs = append(errs, way.region.Close())
	}
	if w.rdma != nil {
		errs = append(errs, w.rdma.Close())
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("memory of collective calls stays in use until this agent ends", "error", err)
	}
}
