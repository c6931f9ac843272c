package yarn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// configSecret names an agent's configuration among its container's credentials.
const configSecret = "tfcluster.agent"

// AgentCommand is the word that has an agent read its configuration from its
// container's credentials: see AgentInput.
const AgentCommand = "--yarn"

// launch starts an agent in a container.
func (a *allocation) launch(ctx context.Context, app application, id cluster.ExecutorID, attempt int, c *yarnpb.Container) error {
	config, err := a.req.AgentConfig(id, attempt)
	if err != nil {
		return fmt.Errorf("configure executor %s: %w", id, err)
	}
	if a.attempt != nil {
		if config, err = a.attempt.findable(config); err != nil {
			return fmt.Errorf("configure executor %s: %w", id, err)
		}
	}
	a.mu.Lock()
	shipped := a.program
	if x := a.executors[id]; x.attempt == attempt {
		x.config = config
	}
	a.mu.Unlock()
	program, err := shipped.resource()
	if err != nil {
		return err
	}
	secrets := &credentials.File{Secrets: map[string][]byte{configSecret: config}}
	return app.nodes.Start(ctx, c, &yarnpb.ContainerLaunchContext{
		LocalResources: []*yarnpb.StringLocalResourceMap{{Key: new("tfcluster"), Value: program}},
		Tokens:         secrets.Encode(),
		Command:        []string{"exec ./tfcluster agent " + AgentCommand + " 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"},
	})
}

// AgentInput is what an agent in a container reads in the place of its standard input:
// the configuration among its credentials, with a folder of the container's own. It fails
// with ErrDriver where the driver cannot be dialled. It is called once, by that process.
func AgentInput() (io.Reader, error) {
	file, err := credentials.Load(os.Getenv("HADOOP_TOKEN_FILE_LOCATION"))
	if err != nil {
		return nil, fmt.Errorf("find the agent's configuration in its container: %w", err)
	}
	raw, ok := file.Secrets[configSecret]
	if !ok {
		return nil, errors.New("find the agent's configuration in its container: its credentials hold none")
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	// A container's folder goes with the container, but its path is too long for a
	// socket's; this is the same folder by a short one, as long as the agent lives.
	config["runtime_dir"] = filepath.Join("/proc", fmt.Sprint(os.Getpid()), "cwd", "agent")
	// The runs' files are beside it, by a path that a program may keep.
	if config["work_dir"], err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("find the container's folder: %w", err)
	}
	if host := os.Getenv("NM_HOST"); host != "" {
		config["host"] = host // as YARN's pages call it
	}
	if err := proveReach(fmt.Sprint(config["coordinator"])); err != nil {
		return nil, err
	}
	b, err := json.Marshal(config)
	return bytes.NewReader(b), err
}

// logLimit is how much of an agent's log is of use, in bytes.
const logLimit = 64 << 10

// Logs is what the agent's container wrote to stderr, from its node.
func (a *allocation) Logs(ctx context.Context, id cluster.ExecutorID) (io.ReadCloser, error) {
	a.mu.Lock()
	var web string
	var container *yarnpb.ContainerId
	if x := a.executors[id]; x != nil {
		web, container = x.web, x.last
	}
	a.mu.Unlock()
	what := fmt.Sprintf("read the log of executor %s", id)
	if container == nil || web == "" {
		return nil, fmt.Errorf("%s: it has had no container", what)
	}
	url := fmt.Sprintf("http://%s/ws/v1/node/containers/%s/logs/stderr?size=-%d", web, protocol.ContainerName(container), logLimit)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s: its node answers %s", what, strings.ToLower(response.Status))
	}
	return response.Body, nil
}
