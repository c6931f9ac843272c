package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/lazyre"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// boards has the TensorBoards that cells of a session show.
type boards struct {
	mu sync.Mutex
	// guarded by mu
	byID  map[string]Board // requests of shown TensorBoards by their opaque ID
	shown []Board          // shown in cells
}

// Board is a TensorBoard that a cell shows.
type Board struct {
	Cluster string
	Request *clusterpb.TensorBoardRequest
	Display string // identifies the cell's display; "" if an earlier kernel showed it
}

// AddBoard adds a TensorBoard that a cell shows, so that its front end can open it by ID.
func (s *State) AddBoard(id string, b Board) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	s.boards.byID[id] = b
	if b.Display != "" {
		s.boards.shown = append(s.boards.shown, b)
	}
}

// Boards returns the TensorBoards of a cluster that cells of this kernel show.
func (s *State) Boards(cluster string) []Board {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.boards.shown), func(b Board) bool { return b.Cluster != cluster })
}

// forget removes the cells that show a cluster's TensorBoard.
func (b *boards) forget(cluster string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown = slices.DeleteFunc(b.shown, func(x Board) bool { return x.Cluster == cluster })
}

func (b *boards) find(id string) (Board, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	board, ok := b.byID[id]
	return board, ok
}

var (
	boardID   = lazyre.New(`^[A-Za-z0-9._-]{1,128}$`)
	boardBase = lazyre.New(`^tfcluster/([A-Za-z0-9._-]+)/[0-9a-f]{32}/$`)
)

// FindBoard opens a TensorBoard and returns its path below the Jupyter server's base URL, and
// its log folder.
func (s *State) FindBoard(ctx context.Context, id string) (path, logdir string, err error) {
	if !boardID().MatchString(id) {
		return "", "", errtext.Fault("%.40q is not the id of a TensorBoard", id)
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	r, err := s.openBoard(ctx, id)
	if err != nil {
		return "", "", result.Answered(err)
	}
	if path, err = s.boardPath(r); err != nil {
		return "", "", err
	}
	return path, r.GetLogdir(), nil
}

// BoardCurves returns the curves of the run for which a TensorBoard was opened, to show instead
// of it; nil if the driver does not answer.
func (s *State) BoardCurves(ctx context.Context, id string) []render.Curve {
	b, _ := s.boards.find(id)
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

// MostCurves is the maximum number of curves that are shown instead of TensorBoard.
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

// openBoard opens the TensorBoard with this ID again. It is that of a cell of this kernel, or that of a cluster to
// which this kernel attached.
func (s *State) openBoard(ctx context.Context, id string) (*clusterpb.TensorBoardReply, error) {
	if b, ok := s.boards.find(id); ok {
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
	return nil, &result.ClusterError{
		Text:   "the cluster of this TensorBoard has ended, or this notebook does not use it",
		Remedy: s.Say("tensorboard") + " opens another",
	}
}

// isBoardPath reports whether a path below the base URL is that of a TensorBoard. The path becomes the source of an
// iframe.
func isBoardPath(path string) bool {
	m := boardBase().FindStringSubmatch(path)
	return m != nil && m[1] != "." && m[1] != ".."
}

// OpenBoard opens a cluster's TensorBoard and returns its path below the Jupyter server's base
// URL. The path contains a secret.
func (m *Handle) OpenBoard(ctx context.Context) (path string, err error) {
	r, err := Ask(ctx, m, m.Client.TensorBoard, &clusterpb.TensorBoardRequest{})
	if err != nil {
		return "", err
	}
	return m.State.boardPath(r)
}

// boardPath returns the path of an opened TensorBoard.
func (s *State) boardPath(r *clusterpb.TensorBoardReply) (string, error) {
	if r.GetError() != "" {
		return "", &result.ClusterError{Text: r.GetError()}
	}
	path := strings.TrimPrefix(r.GetPath(), "/")
	if !isBoardPath(path) {
		return "", errors.New("TensorBoard cannot be shown: the cluster's driver is of another version of tfcluster: " +
			"shut the cluster down and reserve it again")
	}
	return path, nil
}

// ErrNoLines is the error of LinesPath for a cluster without lines for browsers: its driver is of an earlier version,
// or has no proxy.
var ErrNoLines = errors.New("no lines of its tasks to browsers")

// LinesPath returns the path below which a browser reads the lines of a cluster's tasks: tfcluster/NAME/TOKEN/, with
// lines and lines/live below it. The path is relative to the Jupyter server's base URL. An empty name means the
// current cluster. The path contains a token: it must not be stored in a notebook. LinesPath does not start
// TensorBoard, and does not make the cluster current.
func (s *State) LinesPath(ctx context.Context, cluster string) (path string, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	if cluster = cmp.Or(cluster, s.LastName()); cluster == "" {
		return "", &result.ClusterError{Text: "there is no cluster", Remedy: s.Say("reserve") + " reserves one"}
	}
	m, release, err := s.Look(ctx, cluster)
	if err != nil {
		return "", err
	}
	defer release()
	r, err := m.Client.LinesAddress(ctx, &clusterpb.LinesAddressRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return "", fmt.Errorf("cluster %s serves %w: its driver is of an earlier version of tfcluster; "+
			"shut the cluster down and reserve it again", cluster, ErrNoLines)
	case err != nil:
		return "", m.Explain(err)
	case !isBoardPath(r.GetPath()):
		return "", fmt.Errorf("cluster %s serves %w: its driver has no proxy for them; %s shows them", cluster, ErrNoLines,
			s.Say("logs -c "+cluster))
	}
	return r.GetPath(), nil
}
