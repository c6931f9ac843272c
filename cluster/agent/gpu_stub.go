//go:build !cgo

package agent

import (
	"errors"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// noLister stands in where NVML cannot be called.
type noLister struct{}

func newGPULister() gpuLister { return noLister{} }

func (noLister) list() ([]*clusterpb.GPU, error) {
	return nil, errors.New("no GPU can be listed: this tfcluster was built with CGO_ENABLED=0, without NVML")
}
