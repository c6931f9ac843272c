package yarn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// configSecret names an agent's configuration among its container's credentials.
const configSecret = "tfcluster.agent"

// AgentCommand is the word that has an agent read its configuration from its
// container's credentials: see ContainerConfig.
const AgentCommand = "--yarn"

// launch starts an agent in a container.
func (a *allocation) launch(ctx context.Context, app application, id cluster.ExecutorID, attempt int, c *yarnpb.Container) error {
	config, err := a.req.AgentConfig(id, attempt)
	if err != nil {
		return fmt.Errorf("configure executor %s: %w", id, err)
	}
	if config.Driver.Find, err = a.addressURI(app); err != nil {
		return fmt.Errorf("configure executor %s: %w", id, err)
	}
	input, err := config.Encode()
	if err != nil {
		return fmt.Errorf("configure executor %s: %w", id, err)
	}
	var task cluster.TaskID
	a.mu.Lock()
	shipped := a.program
	x := a.executors[id]
	if task = x.request.Task; x.attempt == attempt {
		x.driver = config.GetDriver().GetCoordinator()
	}
	a.mu.Unlock()
	program, err := shipped.resource()
	if err != nil {
		return err
	}
	secrets := &credentials.File{Secrets: map[string][]byte{configSecret: input}}
	return app.nodes.Start(ctx, c, &yarnpb.ContainerLaunchContext{
		LocalResources: []*yarnpb.StringLocalResourceMap{{Key: new("tfcluster"), Value: program}},
		Tokens:         secrets.Encode(),
		Command:        []string{"echo " + containerlogs.AgentMark(task, attempt) + "; exec ./tfcluster agent " + AgentCommand + " 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"},
	})
}

// ContainerConfig is the configuration of an agent in a container: the one among its
// credentials, with a folder of the container's own. It fails with ErrDriver where the
// driver cannot be dialled. It is called once, by that process.
func ContainerConfig() (*clusterpb.AgentConfig, error) {
	file, err := credentials.Load(os.Getenv("HADOOP_TOKEN_FILE_LOCATION"))
	if err != nil {
		return nil, fmt.Errorf("find the agent's configuration in its container: %w", err)
	}
	raw, ok := file.Secrets[configSecret]
	if !ok {
		return nil, errors.New("find the agent's configuration in its container: its credentials hold none")
	}
	config, err := clusterpb.ReadAgentConfig(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	work, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the container's folder: %w", err)
	}
	// A container's folder goes with the container, but its path is too long for a
	// socket's; this is the same folder by a short one, as long as the agent lives.
	// The runs' files are beside it, by a path that a program may keep.
	config.Folders = &clusterpb.HostFolders{RuntimeDir: filepath.Join("/proc", fmt.Sprint(os.Getpid()), "cwd", "agent"), WorkDir: work}
	config.Host = os.Getenv("NM_HOST") // as YARN's pages call it
	if err := proveReach(config.GetDriver().GetCoordinator()); err != nil {
		return nil, err
	}
	return config, nil
}

// Logs is what the agent's last container wrote, the end of it: from its node, or, where
// that has none any more, from HDFS.
func (a *allocation) Logs(ctx context.Context, id cluster.ExecutorID) (io.ReadCloser, error) {
	a.mu.Lock()
	var last *containerlogs.Location
	for i, p := range a.places {
		if p.Executor == id {
			last = &a.places[i]
		}
	}
	a.mu.Unlock()
	what := fmt.Sprintf("read the log of executor %s", id)
	if last == nil {
		return nil, fmt.Errorf("%s: it has had no container", what)
	}
	app, _, err := protocol.ParseContainer(last.Container)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var text bytes.Buffer
	q := cluster.LogQuery{Task: last.Container, Last: logLines}
	err = containerlogs.ReadApplication(ctx, a.site, app, []containerlogs.Location{*last}, q, func(_ string, lines []*clusterpb.Line) error {
		for _, l := range lines {
			text.WriteString(l.GetText() + "\n")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return io.NopCloser(&text), nil
}

// logLines is how much of each of a container's logs says why its agent did not come.
const logLines = 100

// ContainerLogs gives what the containers of this allocation wrote, also of those that
// ended, application by application.
func (a *allocation) ContainerLogs(ctx context.Context, q cluster.LogQuery, emit func(string, []*clusterpb.Line) error) error {
	a.mu.Lock()
	places := slices.Clone(a.places)
	a.mu.Unlock()
	byApp := map[string][]containerlogs.Location{}
	var apps []string
	for _, p := range places {
		id, _, err := protocol.ParseContainer(p.Container)
		if err != nil {
			return err
		}
		name := protocol.ApplicationName(id)
		if byApp[name] == nil {
			apps = append(apps, name)
		}
		byApp[name] = append(byApp[name], p)
	}
	if now := a.ID(); now != "" && byApp[now] == nil {
		apps = append(apps, now)
	}
	if id, _, err := protocol.ParseContainer(q.Task); err == nil {
		apps = []string{protocol.ApplicationName(id)}
	}
	if q.Allocation != "" {
		apps = []string{q.Allocation}
	}
	for _, name := range apps {
		id, err := protocol.ParseApplication(name)
		if err == nil {
			err = containerlogs.ReadApplication(ctx, a.site, id, byApp[name], q, emit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
