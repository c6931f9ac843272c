package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// heldGPUs are the GPUs this executor has picked, each under its host's lock.
type heldGPUs struct {
	gpus  []*clusterpb.GPU
	locks []interface{ Close() error }
}

// visible is CUDA_VISIBLE_DEVICES for a task: the held ones by UUID, or none.
func (h *heldGPUs) visible() string {
	if h == nil || len(h.gpus) == 0 {
		return "-1"
	}
	uuids := make([]string, len(h.gpus))
	for i, g := range h.gpus {
		uuids[i] = g.GetUuid()
	}
	return strings.Join(uuids, ",")
}

func (h *heldGPUs) release() {
	for _, lock := range h.locks {
		lock.Close()
	}
	h.locks, h.gpus = nil, nil
}

func holdGPUs(context.Context, int, string) (*heldGPUs, error) { return nil, errors.New("not yet") }
