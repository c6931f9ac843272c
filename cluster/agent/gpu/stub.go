//go:build !cgo

package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// noLister replaces NVML in builds without cgo.
type noLister struct{}

// NewLister returns a Lister of this host's GPUs by nvidia-smi.
func NewLister() Lister { return libraryOrProgram{noLister{}, newSMILister()} }

func (noLister) list(context.Context) ([]*clusterpb.GPU, error) {
	return nil, fmt.Errorf("%w: there is no nvidia-smi, and this tfcluster was built with CGO_ENABLED=0, without NVML",
		errNoDriver)
}

// newSource returns what measures GPUs.
func newSource() source { return libraryOrProgramSource{noLister{}, newSMILister()} }

func (l noLister) measure(ctx context.Context, _ time.Duration, _ func(int, string) bool,
	_ func(int, string, int32, uint64),
) error {
	_, err := l.list(ctx)
	return err
}
