package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Defaults until the coordinator's Welcome sets other values.
const (
	defaultServer      = "coordinator"
	defaultOrphanGrace = time.Minute
	defaultIdle        = 30 * time.Minute
)

// complete checks a configuration and returns a copy with the defaults set.
func complete(given *clusterpb.AgentConfig) (*clusterpb.AgentConfig, error) {
	for _, required := range []struct{ name, value string }{
		{"executor_id", given.GetIdentity().GetExecutorId()},
		{"coordinator", given.GetDriver().GetCoordinator()},
		{"runtime_dir", given.GetFolders().GetRuntimeDir()},
	} {
		if required.value == "" {
			return nil, errtext.Fault("the agent's configuration lacks %s", required.name)
		}
	}
	wait := given.GetTimeouts()
	if given.GetGpus().GetCount() < 0 || given.GetThreads() < 0 || wait.GetOrphanGraceMillis() < 0 ||
		wait.GetIdleMillis() < 0 {
		return nil, errtext.Fault("the agent's configuration has a negative number")
	}
	cfg := proto.CloneOf(given)
	cfg.Driver.ServerName = cmp.Or(cfg.Driver.ServerName, defaultServer)
	if wait == nil {
		cfg.Timeouts = &clusterpb.AgentTimeouts{
			OrphanGraceMillis: defaultOrphanGrace.Milliseconds(), IdleMillis: defaultIdle.Milliseconds(),
		}
	}
	return cfg, nil
}

// millis converts milliseconds of a message.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Main is `tfcluster agent`: it runs an agent until it is released, has been without a driver
// for too long, or ctx ends. It logs to the configured file, otherwise to stderr.
func Main(ctx context.Context, cfg *clusterpb.AgentConfig, version string) error {
	out := io.Writer(os.Stderr)
	if path := cfg.GetFolders().GetLogFile(); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("open the agent's log: %w", err)
		}
		defer f.Close()
		out = f
	}
	return Run(ctx, cfg, version, slog.New(slog.NewTextHandler(out, nil)))
}
