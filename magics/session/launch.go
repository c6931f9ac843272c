package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/result"
)

// runsFolder is the default folder for results in the notebook's folder.
const runsFolder = "tfcluster-runs"

// Launch starts a driver. Without a name it takes the first free one. The default folder for results has that name,
// in the notebook's folder; for an engine with HDFS the driver chooses the folder.
func (s *State) Launch(ctx context.Context, req *clusterpb.ReserveRequest) (*Handle, error) {
	req = proto.CloneOf(req)
	named, placed := req.GetName() != "", req.GetDir() != ""
	engine, _ := s.Options.Engines.Find(req.GetBackend())
	ctx, cancel := context.WithTimeout(ctx, RecoverTimeout)
	defer cancel()
	var err error
	for first := 1; first < 100; first++ {
		if !named {
			if req.Name, first, err = s.freeName(ctx, req.GetBackend(), first); err != nil {
				return nil, err
			}
		}
		if !placed && !engine.Hadoop {
			req.Dir = filepath.Join(req.GetWorkingDir(), runsFolder, req.GetName())
		}
		if !utf8.ValidString(req.GetDir()) {
			return nil, &result.ClusterError{
				Text:   fmt.Sprintf("the folder for results, %q, has a name that is not UTF-8", req.GetDir()),
				Remedy: "work in another folder, or give --dir", Code: 2,
			}
		}
		name, client, lerr := s.Options.Connector.Launch(ctx, req)
		if lerr == nil {
			return s.adopt(name, client, true), nil
		}
		err = lerr
		if named || !s.taken(ctx, req.GetName()) {
			break
		}
	}
	refused := &result.ClusterError{Text: "the cluster's driver did not start: " + err.Error(), Code: 69}
	if _, taken := errors.AsType[*state.NameTaken](err); taken && named {
		return nil, &Taken{refused}
	}
	return nil, refused
}

// Taken is the error of a Launch with the name of another cluster, which may be about to end.
type Taken struct{ *result.ClusterError }

// Unwrap implements errors.Unwrap.
func (e *Taken) Unwrap() error { return e.ClusterError }

// freeName returns the next name of local-1, local-2, …, which no cluster had before. If the history does not count
// clusters, it returns the first unused name, from number first on.
func (s *State) freeName(ctx context.Context, backend string, first int) (string, int, error) {
	if namer, ok := s.Options.History.(Namer); ok {
		n, err := namer.NextNumber(ctx, backend)
		return backend + "-" + strconv.Itoa(n), n, err
	}
	infos, err := s.Options.Connector.List(ctx)
	if err != nil {
		return "", 0, err
	}
	for n := first; ; n++ {
		if name := backend + "-" + strconv.Itoa(n); !hasName(infos, name) {
			return name, n, nil
		}
	}
}

func (s *State) taken(ctx context.Context, name string) bool {
	infos, err := s.Options.Connector.List(ctx)
	return err == nil && hasName(infos, name)
}

func hasName(infos []ClusterInfo, name string) bool {
	return slices.ContainsFunc(infos, func(i ClusterInfo) bool { return i.Name == name })
}
