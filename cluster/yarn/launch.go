package yarn

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// configSecret is the name of an agent's configuration among its container's credentials.
const configSecret = "tfcluster.agent"

// AgentCommand is the argument with which an agent reads its configuration from its container's
// credentials: see ContainerConfig.
const AgentCommand = "--yarn"

// launch starts an agent in a container.
func (a *allocation) launch(ctx context.Context, app application, id cluster.ExecutorID, attempt int,
	c *yarnpb.Container,
) error {
	config, err := a.req.AgentConfig(id, attempt)
	if err != nil {
		return err
	}
	if config.Driver.Find, err = a.addressURI(app); err != nil {
		return err
	}
	input, err := config.Encode()
	if err != nil {
		return err
	}
	var task cluster.TaskID
	a.mu.Lock()
	shipped := a.program
	x := a.executors[id]
	if task = x.request.Task; x.attempt == attempt {
		x.driver = config.GetDriver().GetCoordinator()
	}
	a.mu.Unlock()
	program, err := shipped.localResource()
	if err != nil {
		return err
	}
	secrets := &credentials.File{Secrets: map[string][]byte{configSecret: input}}
	return app.nodes.Start(ctx, c, &yarnpb.ContainerLaunchContext{
		LocalResources: []*yarnpb.StringLocalResourceMap{{Key: new("tfcluster"), Value: program}},
		Tokens:         secrets.Encode(),
		Command: []string{
			"echo " + containerlogs.AgentMark(task, attempt) + "; exec ./tfcluster agent " + AgentCommand +
				" 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr",
		},
	})
}

// ContainerConfig returns the configuration of the agent in this container: the one among its credentials,
// with the container's folder. It returns ErrDriverUnreachable if the driver cannot be dialled. The agent's
// process calls it once.
func ContainerConfig() (*clusterpb.AgentConfig, error) {
	file, err := credentials.Load(os.Getenv("HADOOP_TOKEN_FILE_LOCATION"))
	if err != nil {
		return nil, fmt.Errorf("find the agent's configuration in its container: %w; the NodeManager has written that file: "+
			"its log and its disks show more", err)
	}
	raw, ok := file.Secrets[configSecret]
	if !ok {
		return nil, errtext.Fault("find the agent's configuration in its container: its credentials hold none")
	}
	config, err := clusterpb.ReadAgentConfig(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	work, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the folder of the agent's container: %w", err)
	}
	// The path of the container's folder is too long for a unix socket's address, so the runtime folder is
	// named by a shorter path, which is valid as long as the agent lives. Files of runs have the long path,
	// which programs may keep.
	config.Folders = &clusterpb.HostFolders{
		RuntimeDir: filepath.Join("/proc", fmt.Sprint(os.Getpid()), "cwd", "agent"), WorkDir: work,
	}
	config.Host = os.Getenv("NM_HOST") // the name that YARN's pages show
	if err := checkDriver(config.GetDriver().GetCoordinator()); err != nil {
		return nil, err
	}
	return config, nil
}

// Logs returns the end of the log of the agent's last container, from its node, or from HDFS if the node
// no longer has it.
func (a *allocation) Logs(ctx context.Context, id cluster.ExecutorID) (io.ReadCloser, error) {
	a.mu.Lock()
	var last *containerlogs.Location
	for i, p := range a.containers {
		if p.Executor == id {
			last = &a.containers[i]
		}
	}
	a.mu.Unlock()
	if last == nil {
		return nil, fs.ErrNotExist
	}
	app, _, err := protocol.ParseContainer(last.Container)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	q := cluster.LogQuery{Task: last.Container, Last: logLines}
	err = containerlogs.ReadApplication(ctx, a.site, app, []containerlogs.Location{*last}, q,
		func(_ string, lines []*clusterpb.Line) error {
			for _, l := range lines {
				text.WriteString(l.GetText() + "\n")
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	return io.NopCloser(&text), nil
}

// logLines is the number of lines of each container log that Logs returns.
const logLines = 100

// ContainerLogs emits the logs of all containers of this allocation, including completed ones, application
// by application.
func (a *allocation) ContainerLogs(ctx context.Context, q cluster.LogQuery,
	emit func(string, []*clusterpb.Line) error,
) error {
	a.mu.Lock()
	containers := slices.Clone(a.containers)
	a.mu.Unlock()
	byApp := map[string][]containerlogs.Location{}
	var apps []string
	for _, p := range containers {
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
