// Command sim measures how a cluster's driver scales. It starts a real driver process with the real
// coordinator, lifecycle, store and gRPC with mTLS, and simulates N agents in its own process, each with a
// separate connection and certificate.
//
//	sim [-agents N] [-profile FILE]     prints its figures as one line of JSON
//
// The driver's figures are those of its process. Wall times depend on the simulation too, which runs on the
// same machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver"
)

// version is the version of driver and agents.
const version = "sim"

// Variables that configure the driver process.
const (
	profileVar     = "TFCLUSTER_SIM_PROFILE"     // the file for a CPU profile of the driver
	descriptorsVar = "TFCLUSTER_SIM_DESCRIPTORS" // the limit of its file descriptors
)

func main() {
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == "driver" { // client.Launch starts it so
		stop() // the driver handles signals itself
		return runDriver(context.Background())
	}
	agents := flag.Int("agents", 1000, "how many agents join")
	profile := flag.String("profile", "", "write a CPU profile of the driver here")
	flag.Parse()
	if *profile != "" {
		if err := os.Setenv(profileVar, *profile); err != nil {
			return fmt.Errorf("enable the profile: %w", err)
		}
	}
	figures, err := measure(ctx, *agents)
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(figures)) // also if the measurement was interrupted
}

// runDriver runs the driver with the simulated engine.
func runDriver(ctx context.Context) (err error) {
	if n, err := strconv.ParseUint(os.Getenv(descriptorsVar), 10, 64); err == nil {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("limit the driver's descriptors: %w", err)
		}
	}
	if path := os.Getenv(profileVar); path != "" {
		stop, err := startProfile(path)
		if err != nil {
			return err
		}
		defer stop()
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return driver.Main(ctx, driver.Options{
		Version: version, Program: program, Engines: cluster.Engines{{Name: engineName, Backend: backend{}}},
	}, io.Reader(os.Stdin), os.NewFile(3, "word"))
}

func startProfile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("write a profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // readers of the profile notice a truncated file
	}, nil
}
