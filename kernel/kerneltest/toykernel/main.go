// Command toykernel is a kernel with the toy Interceptor, for tests: toykernel CONNECTION_FILE
// PYTHON.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	k, err := kernel.New(kernel.Config{
		ConnectionFile: os.Args[1], Python: os.Args[2], Interceptor: &kerneltest.Toy{}, Banner: "toy", Log: log,
	})
	if err == nil {
		err = k.Run(context.Background())
	}
	if err != nil {
		log.Error("toykernel", "err", err)
		os.Exit(1)
	}
}
