//go:build !cgo

package gpu

import (
	"context"
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// noLister replaces NVML in builds without cgo.
type noLister struct{}

// NewLister returns a Lister of this host's GPUs by nvidia-smi.
func NewLister() Lister { return libraryOrProgram{noLister{}, newSMILister()} }

func (noLister) list(context.Context) ([]*clusterpb.GPU, error) {
	return nil, fmt.Errorf("%w: there is no nvidia-smi, and this tfcluster was built with CGO_ENABLED=0, without NVML", errNoDriver)
}
