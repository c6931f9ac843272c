package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/local"
	"github.com/tfcluster/tfcluster/cluster/spark/slot"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
)

// configFileVar names the file to which an agent that a test starts writes its configuration, instead of
// running.
const configFileVar = "TFCLUSTER_TEST_AGENT_CONFIG"

func writeAgentConfig(path string, args []string) int {
	config, err := agentConfig(args)
	if err == nil {
		var b []byte
		if b, err = config.Encode(); err == nil {
			err = os.WriteFile(path+".part", b, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestAgentConfig: an agent gets the driver's configuration and its backend's settings, however they are
// transferred.
func TestAgentConfig(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	sent := &clusterpb.AgentConfig{
		Identity: &clusterpb.AgentIdentity{ExecutorId: "0", Attempt: 3, KeyPem: "secret"},
		Driver:   &clusterpb.DriverAddress{Coordinator: ln.Addr().String(), ServerName: "coordinator", Find: "hdfs://a/b"},
		Hadoop:   &clusterpb.HadoopClient{User: "u", Properties: map[string]string{"k": "v"}},
		Timeouts: &clusterpb.AgentTimeouts{OrphanGraceMillis: 1},
		WarmUp:   &clusterpb.WarmUp{Plain: true},
	}
	encoded, err := sent.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		start func(t *testing.T, dir string)
		added func(c *clusterpb.AgentConfig, dir string) bool
	}{
		"local": {
			start: func(t *testing.T, dir string) {
				a, err := (&local.Backend{}).Allocate(t.Context(), cluster.Request{
					Cluster: "c", Program: os.Args[0], StateDir: dir, Reserve: &clusterpb.ReserveRequest{Dir: dir},
					Executors: []cluster.ExecutorRequest{
						{ID: "0", Task: cluster.TaskID{Role: cluster.PS}, Each: &clusterpb.Resources{Cpus: 2}},
					},
					AgentConfig: func(cluster.ExecutorID, int) (*clusterpb.AgentConfig, error) { return proto.CloneOf(sent), nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := a.Release(context.Background(), cluster.Succeeded, ""); err != nil {
						t.Error(err)
					}
				})
			},
			added: func(c *clusterpb.AgentConfig, dir string) bool {
				return c.GetFolders().GetSharedDir() == dir && c.GetFolders().GetRuntimeDir() != "" &&
					c.GetAddress() == "127.0.0.1" && c.GetThreads() == 2
			},
		},
		"spark": {
			start: func(t *testing.T, dir string) {
				program, err := os.ReadFile(os.Args[0])
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(program)
				request, err := json.Marshal(slot.Request{
					Identity: "c", Coordinator: ln.Addr().String(), Digest: hex.EncodeToString(sum[:]), Python: "sh", Hold: true,
					Assigned: true, Executor: "0", Config: encoded,
				})
				if err != nil {
					t.Fatal(err)
				}
				start(t, request, "spark-slot")
			},
			added: func(c *clusterpb.AgentConfig, dir string) bool {
				f := c.GetFolders()
				return f.GetOwnRuntimeDir() && filepath.Dir(f.GetLogFile()) == f.GetRuntimeDir() && filepath.IsAbs(c.GetPython()) &&
					c.GetGpus().GetAssigned() &&
					len(c.GetOwners()) > 0 && c.GetOwners()[0].GetPid() > 0 && c.GetOwners()[0].GetWhat() == "Spark's task"
			},
		},
		"yarn": {
			start: func(t *testing.T, dir string) {
				file := filepath.Join(dir, "tokens")
				tokens := &credentials.File{Secrets: map[string][]byte{"tfcluster.agent": encoded}}
				if err := os.WriteFile(file, tokens.Encode(), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("HADOOP_TOKEN_FILE_LOCATION", file)
				t.Setenv("NM_HOST", "node-7")
				start(t, nil, "agent", yarn.AgentCommand)
			},
			added: func(c *clusterpb.AgentConfig, dir string) bool {
				return c.GetHost() == "node-7" && filepath.Base(c.GetFolders().GetRuntimeDir()) == "agent" &&
					filepath.IsAbs(c.GetFolders().GetWorkDir())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/tmp", "agentconfig") // paths of sockets must be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			file := filepath.Join(dir, "noted")
			for key, value := range map[string]string{configFileVar: file, "XDG_RUNTIME_DIR": dir, "TMPDIR": dir} {
				t.Setenv(key, value)
			}
			tt.start(t, dir)
			got := readConfigFile(t, file)
			if !tt.added(got, dir) {
				t.Errorf("the backend's settings are missing in %v", got)
			}
			for _, same := range [][2]proto.Message{
				{got.GetIdentity(), sent.GetIdentity()},
				{got.GetDriver(), sent.GetDriver()},
				{got.GetHadoop(), sent.GetHadoop()},
				{got.GetTimeouts(), sent.GetTimeouts()},
				{got.GetWarmUp(), sent.GetWarmUp()},
			} {
				if !proto.Equal(same[0], same[1]) {
					t.Errorf("the agent has %v, the driver sent %v", same[0], same[1])
				}
			}
		})
	}
}

// start runs this program and waits for its end.
func start(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "TFCLUSTER_TEST_MAIN=1"), bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func readConfigFile(t *testing.T, path string) *clusterpb.AgentConfig {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err != nil && time.Now().Before(end) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := clusterpb.ReadAgentConfig(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}
