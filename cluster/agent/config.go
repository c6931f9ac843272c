package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Config is what a backend writes to an agent's standard input, in JSON.
type Config struct {
	ExecutorID  string `json:"executor_id"`
	Attempt     int32  `json:"attempt"`
	Cluster     string `json:"cluster"`
	Coordinator string `json:"coordinator"` // HOST:PORT
	Find        string `json:"find"`        // a file on HDFS that holds where the coordinator is now; "": it stays
	CA          string `json:"ca_pem"`
	Cert        string `json:"cert_pem"`
	Key         string `json:"key_pem"`
	ServerName  string `json:"server_name"`
	Host        string `json:"host"`    // name for people; "": this machine's
	Address     string `json:"address"` // what peers dial; "": the local one toward the coordinator
	RuntimeDir  string `json:"runtime_dir"`
	Role        string `json:"role"`
	Number      int    `json:"number"`
	GPUs        int    `json:"gpus"`
	Assigned    bool   `json:"gpus_assigned"` // the engine gave this executor those in CUDA_VISIBLE_DEVICES, and nobody else
	Threads     int    `json:"threads"`       // this executor's share of the cores, for TensorFlow's intra-op pool; 0: as many as cores
	OrphanGrace int64  `json:"orphan_grace_millis"`
	Idle        int64  `json:"idle_millis"` // 0: for ever
	SharedDir   string `json:"shared_dir"`  // the cluster's directory when it is on a disk shared with the driver
	WorkDir     string `json:"work_dir"`    // where the runs' files lie when it is not; "": runtime_dir
	LogFile     string `json:"log_file"`    // of the agent itself; "": stderr
	// Hadoop is what the driver knows of HDFS; nil: nothing.
	Hadoop *Hadoop `json:"hadoop"`
	// WarmUp is what the coordinator's welcome will want ready, a clusterpb.WarmUp by protojson, where that can be begun
	// before; nil: it cannot.
	WarmUp json.RawMessage `json:"warm_up"`
	// Watch are processes with which the agent ends, such as Spark's executor.
	Watch []Owner `json:"watch"`
	// Python is the executor's interpreter where the backend knows it better than the driver.
	Python string `json:"python"`
	// CacheDir holds unpacked environments of this user on this host; "": one below the temporary folder.
	CacheDir string `json:"cache_dir"`
	// HostDir is shared by the cluster's agents on this host that are within the same limits, and goes with the last of
	// them: the interpreter that has TensorFlow imported is there. "": RuntimeDir.
	HostDir string `json:"host_dir"`
	// OwnRuntimeDir: RuntimeDir is this agent's alone, and goes with it.
	OwnRuntimeDir bool `json:"own_runtime_dir"`
}

// maxConfig bounds what is read from standard input, in bytes.
const maxConfig = 1 << 20

// ReadConfig reads a configuration until EOF and checks it.
func ReadConfig(r io.Reader) (Config, error) {
	cfg := Config{OrphanGrace: 60_000, Idle: 30 * 60_000, ServerName: "coordinator"}
	raw, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return Config{}, fmt.Errorf("read the agent's configuration: %w", err)
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return Config{}, fmt.Errorf("read the agent's configuration: %w", err)
	}
	return cfg, cfg.check()
}

func (c Config) check() error {
	for _, required := range []struct{ name, value string }{
		{"executor_id", c.ExecutorID},
		{"coordinator", c.Coordinator},
		{"runtime_dir", c.RuntimeDir},
	} {
		if required.value == "" {
			return fmt.Errorf("the agent's configuration lacks %s", required.name)
		}
	}
	if c.GPUs < 0 || c.Threads < 0 || c.OrphanGrace < 0 || c.Idle < 0 {
		return errors.New("the agent's configuration has a negative number")
	}
	return nil
}

// warmUp is WarmUp; nil where there is none.
func (c Config) warmUp() (*clusterpb.WarmUp, error) {
	if len(c.WarmUp) == 0 || string(c.WarmUp) == "null" {
		return nil, nil
	}
	want := &clusterpb.WarmUp{}
	if err := protojson.Unmarshal(c.WarmUp, want); err != nil {
		return nil, fmt.Errorf("read warm_up of the agent's configuration: %w", err)
	}
	return want, nil
}

func (c Config) orphanGrace() time.Duration { return time.Duration(c.OrphanGrace) * time.Millisecond }
func (c Config) idle() time.Duration        { return time.Duration(c.Idle) * time.Millisecond }

// Main is `tfcluster agent`: it reads its configuration from stdin and runs
// until it is released, its driver stayed away too long, or ctx ends.
func Main(ctx context.Context, stdin io.Reader, version string) error {
	cfg, err := ReadConfig(stdin)
	if err != nil {
		return err
	}
	out := io.Writer(os.Stderr)
	if cfg.LogFile != "" {
		f, err := os.OpenFile(cfg.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("open the agent's log: %w", err)
		}
		defer f.Close()
		out = f
	}
	return Run(ctx, cfg, version, slog.New(slog.NewTextHandler(out, nil)))
}
