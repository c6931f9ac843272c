package local

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// orphanGrace is short, since users want their own machine back.
const orphanGrace = 3 * time.Second

// Engine describes this backend. checkGPUs is Backend.CheckGPUs.
func Engine(checkGPUs func(context.Context, int) error) cluster.Engine {
	return cluster.Engine{
		Name: "local", Title: "this machine", Backend: &Backend{CheckGPUs: checkGPUs},
		OnThisHost: true, OrphanGrace: orphanGrace,
	}
}
