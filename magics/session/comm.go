package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// CommTarget is the target name of the comm that the JupyterLab extension opens.
const CommTarget = "tfcluster.v1"

// commLease is how long an open comm lives without a message: a page that is reloaded never
// closes its comm. The front end pings every 10 s.
const commLease = 45 * time.Second

// comms is the state behind the comms of a session.
type comms struct {
	mu sync.Mutex
	// guarded by mu
	boards map[string]Board // requests of shown TensorBoards by their opaque ID
	shown  []Board          // shown in cells
}

// Board is a TensorBoard that a cell shows.
type Board struct {
	Cluster string
	Request *clusterpb.TensorBoardRequest
	Display string // identifies the cell's display; "" if an earlier kernel showed it
}

// AddBoard adds a TensorBoard that a cell shows, so that its front end can open it by ID.
func (s *State) AddBoard(id string, b Board) {
	s.comms.mu.Lock()
	defer s.comms.mu.Unlock()
	s.comms.boards[id] = b
	if b.Display != "" {
		s.comms.shown = append(s.comms.shown, b)
	}
}

// Boards returns the TensorBoards of a cluster that cells of this kernel show.
func (s *State) Boards(cluster string) []Board {
	s.comms.mu.Lock()
	defer s.comms.mu.Unlock()
	var of []Board
	for _, b := range s.comms.shown {
		if b.Cluster == cluster {
			of = append(of, b)
		}
	}
	return of
}

// forget removes the cells that show a cluster's TensorBoard.
func (c *comms) forget(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = slices.DeleteFunc(c.shown, func(b Board) bool { return b.Cluster == cluster })
}

func (c *comms) find(id string) (Board, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.boards[id]
	return b, ok
}

// commMessage is a message of the front end: {type:"tensorboard", id}, {type:"status"},
// {type:"ping"}.
type commMessage struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// ServeComm answers one comm until messages is closed, ctx ends or the front end
// has been silent for 45 s. send may be called until it returns.
//
//	{type:"tensorboard", id}  →  {type:"tensorboard", id, path, logdir, curves}; without curves where no run has any
//	{type:"status"}           →  {type:"status", sequence, cluster}; cluster null when there is none
//	{type:"ping"}             →  {type:"pong"}
//	what cannot be answered   →  {type:"error", message}
//
// jupyter-ext/testdata/comm.json holds the words that both sides are tested with.
func (s *State) ServeComm(ctx context.Context, messages <-chan json.RawMessage, send func(data any)) {
	lease := time.NewTimer(commLease)
	defer lease.Stop()
	sequence := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		case <-lease.C:
			return
		case raw, ok := <-messages:
			if !ok {
				return
			}
			lease.Reset(commLease)
			sequence++
			send(s.answerComm(ctx, raw, sequence))
		}
	}
}

func (s *State) answerComm(ctx context.Context, raw json.RawMessage, sequence int) map[string]any {
	var m commMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return commError("not a message of " + CommTarget)
	}
	switch m.Type {
	case "ping":
		return map[string]any{"type": "pong"}
	case "tensorboard":
		path, logdir, err := s.findBoard(ctx, m.ID)
		if err != nil {
			return commError(err.Error())
		}
		answer := map[string]any{"type": "tensorboard", "id": m.ID, "path": path, "logdir": logdir}
		if curves := s.boardCurves(ctx, m.ID); len(curves) > 0 {
			answer["curves"] = curves
		}
		return answer
	case "status":
		return map[string]any{"type": "status", "sequence": sequence, "cluster": s.snapshot(ctx)}
	default:
		return commError(fmt.Sprintf("no message %q", command.Shorten(m.Type, 40)))
	}
}

func commError(text string) map[string]any { return map[string]any{"type": "error", "message": text} }

var (
	boardID = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	})
	boardBase = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^tfcluster/([A-Za-z0-9._-]+)/[0-9a-f]{32}/$`)
	})
)

// findBoard opens a TensorBoard and returns its path below the Jupyter server's base URL, and
// its log folder.
func (s *State) findBoard(ctx context.Context, id string) (path, logdir string, err error) {
	if !boardID().MatchString(id) {
		return "", "", errors.New("not the id of a TensorBoard")
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	r, err := s.openBoard(ctx, id)
	switch {
	case err != nil:
		return "", "", result.Answered(err)
	case r.GetError() != "":
		return "", "", errors.New(r.GetError())
	}
	if path = strings.TrimPrefix(r.GetPath(), "/"); !isBoardPath(path) {
		return "", "", fmt.Errorf("TensorBoard has no path here: is jupyter-server-proxy installed? %s says", s.Say("doctor"))
	}
	return path, r.GetLogdir(), nil
}

// ErrNoLines is the error of LinesPath for a cluster whose lines no browser can read by HTTP: its driver is of an
// earlier version, or has no proxy.
var ErrNoLines = errors.New("no lines by HTTP")

// LinesPath returns the path, below the Jupyter server's base URL, below which a browser reads the lines of a cluster's
// tasks: tfcluster/NAME/TOKEN/, with lines and lines/live below it. "" is the current cluster. The path contains a
// token: it must not be stored in a notebook. TensorBoard is not started.
func (s *State) LinesPath(ctx context.Context, cluster string) (path string, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	if cluster == "" {
		if cluster = s.LastName(); cluster == "" {
			return "", &result.ClusterError{Text: "there is no cluster", Remedy: s.Say("reserve") + " reserves one"}
		}
	}
	m, err := s.Reach(ctx, cluster)
	if err != nil {
		return "", err
	}
	r, err := m.Client.LinesAddress(ctx, &clusterpb.LinesAddressRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return "", fmt.Errorf("cluster %s serves %w: %s", cluster, ErrNoLines, result.PlainError(err))
	case err != nil:
		return "", m.Explain(err)
	case !isBoardPath(r.GetPath()):
		return "", fmt.Errorf("cluster %s serves %w: the answer of its driver has no path", cluster, ErrNoLines)
	}
	return r.GetPath(), nil
}

// boardCurves returns the curves of the run for which a TensorBoard was opened, to show instead
// of it; nil if the driver does not answer.
func (s *State) boardCurves(ctx context.Context, id string) []render.Curve {
	b, _ := s.comms.find(id)
	m := s.Find(b.Cluster)
	if m == nil {
		return nil
	}
	runs, err := m.History(ctx, b.Request.GetRun() > 0)
	if err != nil {
		return nil
	}
	return render.Curves(PickRun(runs, b.Request.GetRun()).GetSeries(), MostCurves)
}

// MostCurves is the maximum number of curves shown instead of TensorBoard.
const MostCurves = 12

// PickRun returns the run with this ID. For 0 it returns the last run that is active or has
// metrics, otherwise the last one; nil if there is none.
func PickRun(runs []*clusterpb.RunStatus, id int32) *clusterpb.RunStatus {
	for _, run := range slices.Backward(runs) {
		if id == run.GetId() || id == 0 && (render.Active(run) || len(run.GetSeries()) > 0) {
			return run
		}
	}
	if id == 0 && len(runs) > 0 {
		return runs[len(runs)-1]
	}
	return nil
}

// openBoard opens the TensorBoard with this ID again: of a cell of this kernel, or of a cluster
// that this kernel attached to.
func (s *State) openBoard(ctx context.Context, id string) (*clusterpb.TensorBoardReply, error) {
	if b, ok := s.comms.find(id); ok {
		m, err := s.Reach(ctx, b.Cluster)
		if err != nil {
			return nil, err
		}
		return m.Client.TensorBoard(ctx, b.Request)
	}
	s.mu.Lock()
	members := slices.Collect(maps.Values(s.clusters))
	s.mu.Unlock()
	for _, m := range members {
		req := &clusterpb.TensorBoardRequest{}
		if r, err := m.Client.TensorBoard(ctx, req); err == nil && r.GetId() == id {
			s.AddBoard(id, Board{Cluster: m.Name, Request: req})
			return r, nil
		}
	}
	return nil, &result.ClusterError{Text: "the cluster is gone", Remedy: s.Say("tensorboard") + " opens another"}
}

// isBoardPath returns whether a path below the base URL is a TensorBoard's: it becomes the
// source of an iframe.
func isBoardPath(path string) bool {
	m := boardBase().FindStringSubmatch(path)
	return m != nil && m[1] != "." && m[1] != ".."
}

// snapshot returns the current cluster's status as JSON; null if there is none.
func (s *State) snapshot(ctx context.Context) json.RawMessage {
	m := s.Find(s.LastName())
	if m == nil {
		return json.RawMessage("null")
	}
	st, err := m.Status(ctx)
	if err != nil {
		return json.RawMessage("null")
	}
	st.Request = nil // it contains the tasks' environment, which may be secret
	text, err := clusterpb.ToJSON(st, true)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}
