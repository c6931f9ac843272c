package local

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// orphanGrace is short, since users want their own machine back.
const orphanGrace = 3 * time.Second

// Engine describes this backend. inventory lists the machine's GPUs.
func Engine(inventory func(context.Context) ([]*clusterpb.GPU, error)) cluster.Engine {
	return cluster.Engine{
		Name: "local", Title: "this machine", Backend: &Backend{Inventory: inventory},
		OnThisHost: true, OrphanGrace: orphanGrace,
	}
}
