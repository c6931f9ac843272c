package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
	"github.com/tfcluster/tfcluster/rdma/collective"
	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// hello is the first line of a connection.
type hello struct {
	Op   string `json:"op"`
	Key  string `json:"key"`
	Rank int    `json:"rank"`
}

// maxHello bounds the first line, in bytes.
const maxHello = 256

// readHello reads the first line, and no byte after it: descriptors may come with the next byte.
func readHello(conn io.Reader) (hello, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, b); err != nil {
			return hello{}, err
		}
		if b[0] == '\n' {
			break
		}
		if line = append(line, b[0]); len(line) > maxHello {
			return hello{}, fmt.Errorf("its first line is longer than %d bytes, so it is not from a tfcluster of this version",
				maxHello)
		}
	}
	var h hello
	if err := json.Unmarshal(line, &h); err != nil {
		return hello{}, fmt.Errorf("its first line is not from a tfcluster of this version: %w", err)
	}
	return h, nil
}

// request is a call of the program.
type request struct {
	Op      string  `json:"op"`
	Kind    string  `json:"kind"`
	Type    string  `json:"type"`
	Reduce  string  `json:"reduce"`
	Root    int     `json:"root"`
	Size    int64   `json:"size"`
	Form    uint32  `json:"form"`
	Seconds float64 `json:"seconds"` // time limit of the call
}

// answer is a line to the program.
type answer struct {
	Op     string     `json:"op"`
	Rank   int        `json:"rank"`
	Names  []string   `json:"names,omitempty"`
	Size   int64      `json:"size,omitempty"`
	Slots  int        `json:"slots,omitempty"`
	Slot   int        `json:"slot"`
	Parts  [][4]int64 `json:"parts,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Again  bool       `json:"again,omitempty"`
}

// maxSeconds bounds the time limit that a program sets for a call: a month.
const maxSeconds = 30 * 24 * 3600

// duration returns the time limit of a program's call, rounded. The program sends the rest of its own time limit, and
// errors must show 1s and not 999.9ms.
func duration(seconds float64) time.Duration {
	d := time.Duration(min(max(seconds, 0), maxSeconds) * float64(time.Second))
	return max(d.Round(10*time.Millisecond), time.Millisecond)
}

// maxCall bounds the line of a call, in bytes.
const maxCall = 4096

// serveProgram makes the program's calls, one after the other, until the program closes its connection. If the group
// ends first, serveProgram sends the reason: the program reads it with its next call.
func (m *Member) serveProgram(ctx context.Context, conn *net.UnixConn) {
	out := jsonlines.NewWriter(conn, reporting) // the program may be stopped
	defer func() {
		m.mu.Lock()
		over := m.over
		m.mu.Unlock()
		if over == "" && ctx.Err() != nil {
			over = context.Cause(ctx).Error()
		}
		if over != "" {
			m.send(out, answer{Op: "failed", Reason: over})
		}
	}()
	var group *collective.Group
	for in := jsonlines.NewReader(conn, maxCall); ; {
		line, err := in.Next()
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			m.send(out, answer{Op: "failed", Reason: errtext.Fault("the program sent %q: %w", line, err).Error()})
			return
		}
		limit := duration(r.Seconds)
		if group == nil {
			var err error
			if group, err = m.await(ctx, limit); err != nil {
				m.send(out, answer{Op: "failed", Reason: err.Error()})
				return
			}
			if err := m.greet(out, group); err != nil {
				return
			}
			continue
		}
		if !m.send(out, m.call(ctx, group, r, limit)) {
			return
		}
	}
}

// send sends an answer, and reports whether that succeeded.
func (m *Member) send(out *jsonlines.Writer, a answer) bool { return out.Write(a) == nil }

// greet sends the program its rank, the names of the group, and the memory of the ranks of its host.
func (m *Member) greet(out *jsonlines.Writer, group *collective.Group) error {
	m.mu.Lock()
	cfg := m.joined.cfg
	m.mu.Unlock()
	segments := map[int]*memory.Segment{cfg.Rank: m.own.Segment()}
	for rank, p := range cfg.Peers {
		if p.Memory != nil {
			segments[rank] = p.Memory.Segment()
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(segments)) {
		s := segments[rank]
		a := answer{
			Op: "memory", Rank: rank, Size: collective.ProgramSlots * s.Layout().SlotSize(0), Slots: collective.ProgramSlots,
		}
		if err := out.Write(a, s.File()); err != nil {
			return err
		}
	}
	return out.Write(answer{Op: "group", Rank: cfg.Rank, Names: cfg.Names, Slot: group.Next()})
}

// kinds has the kinds of calls by their names.
var kinds = map[string]collective.Kind{
	"all_reduce": collective.AllReduce, "broadcast": collective.Broadcast, "all_gather": collective.AllGather,
	"exchange": collective.Exchange,
}

// call makes one call of the program.
func (m *Member) call(ctx context.Context, group *collective.Group, r request, limit time.Duration) answer {
	c := collective.Call{Root: r.Root, Size: r.Size, Form: r.Form}
	kind, known := kinds[r.Kind]
	var err error
	if c.Kind = kind; !known {
		err = errtext.Fault("there is no collective call %q", r.Kind)
	}
	if reduces := c.Kind == collective.AllReduce || c.Kind == collective.Exchange; err == nil && reduces && r.Size > 0 {
		if c.Type, err = reduce.ParseType(r.Type); err == nil {
			c.Op, err = reduce.ParseOp(r.Reduce)
		}
	}
	if err != nil {
		return answer{Op: "failed", Reason: err.Error(), Again: true}
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the timeout= of %v has passed", limit))
	defer cancel()
	before := group.Next()
	m.count(1, true)
	parts, err := group.Run(limited, c)
	if invalid(err) {
		err = errtext.AsFault(err)
	}
	if err != nil && group.Next() == before {
		m.count(-1, false)
		return answer{Op: "failed", Reason: err.Error(), Again: true}
	}
	if err != nil {
		return answer{Op: "failed", Reason: m.why(ctx, err)}
	}
	m.count(0, false)
	a := answer{Op: "done"}
	for _, p := range parts {
		a.Parts = append(a.Parts, [4]int64{int64(p.Rank), int64(p.Slot), p.Offset, p.Size})
	}
	return a
}

// invalid reports whether only a defect of tfcluster causes this error of a collective call.
func invalid(err error) bool {
	return slices.ContainsFunc([]error{collective.ErrInvalid, transport.ErrProtocol, reduce.ErrVectors},
		func(e error) bool { return errors.Is(err, e) })
}

// count records that the program has begun or ended a call.
func (m *Member) count(more int, calling bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = calls{m.begun + uint64(more), calling}
}
