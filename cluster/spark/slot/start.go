package slot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// sparkVariables are variables that Spark sets for its Python workers and that our tasks must not inherit.
var sparkVariables = []string{
	"OMP_NUM_THREADS",
	"PYTHONHASHSEED",
	"PYTHON_WORKER_FACTORY_SECRET",
	"PYTHON_WORKER_FACTORY_PORT",
	"SPARK_AUTH_SOCKET_TIMEOUT",
	"SPARK_BUFFER_SIZE",
	"SPARK_CONNECT_AUTHENTICATE_TOKEN",
	"SPARK_REUSE_WORKER",
}

// program returns the path of this program, which must be the same as the driver's.
func (o *Request) program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the path of the agent's program: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the agent's program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read the agent's program: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != o.Digest {
		return "", fmt.Errorf("the program %s on this executor is not the driver's tfcluster (its SHA-256 is %.12s…): "+
			"an earlier one was left there; reserve again", path, got)
	}
	return path, nil
}

// start starts the agent in a new session, in which it survives this process. Spark reuses its workers and
// waits for the end of the output of a piped command, so the agent must not be their child and must not
// inherit their descriptors.
func (o *Request) start(program, folder string, owners []*clusterpb.OwnerProcess, slot *os.File) (pid int, err error) {
	config, err := o.config(folder, owners)
	if err != nil {
		return 0, err
	}
	input, err := config.Encode()
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(logFile(folder), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the agent's log: %w", err)
	}
	defer log.Close()
	// A file, not a pipe: this process may exit before the agent has read it.
	stdin, err := unlinkedFile(folder, input)
	if err != nil {
		return 0, fmt.Errorf("write the agent's configuration: %w", err)
	}
	defer stdin.Close()
	cmd := exec.Command(program, "agent")
	cmd.Stdin, cmd.Stderr, cmd.Dir, cmd.Env = stdin, log, folder, o.environment(os.Environ())
	cmd.ExtraFiles = []*os.File{slot} // the agent holds its lock while it runs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the agent: %w", err)
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}

func logFile(folder string) string { return filepath.Join(folder, "agent.log") }

// config returns the agent's configuration with the settings that only this executor knows.
func (o *Request) config(folder string, owners []*clusterpb.OwnerProcess) (*clusterpb.AgentConfig, error) {
	config, err := clusterpb.ReadAgentConfig(bytes.NewReader(o.Config))
	if err != nil {
		return nil, err
	}
	config.Folders = &clusterpb.HostFolders{RuntimeDir: folder, OwnRuntimeDir: true, LogFile: logFile(folder)}
	config.Owners = owners
	if path, err := exec.LookPath(o.Python); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			config.Python = path
		}
	} else if o.Python != "" {
		config.Python = o.Python // the agent reports that it is missing
	}
	if o.Assigned { // hides GPUs that modules imported earlier may have detected
		if config.Gpus == nil {
			config.Gpus = &clusterpb.GPUShare{}
		}
		config.Gpus.Assigned = true
	} else {
		config.Folders.HostDir = hostFolder(filepath.Dir(folder), o.Identity)
	}
	return config, nil
}

func (o *Request) environment(env []string) []string {
	drop := sparkVariables
	if o.Assigned {
		drop = append(slices.Clone(drop), "CUDA_VISIBLE_DEVICES")
	}
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		return slices.Contains(drop, key)
	})
	if o.Assigned {
		env = append(env, "CUDA_VISIBLE_DEVICES="+o.GPUs)
	}
	return env
}

// unlinkedFile returns an open file with the data and without a name, since the data contains a key.
func unlinkedFile(dir string, data []byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, "config-") // readable by this user alone
	if err != nil {
		return nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = f.WriteAt(data, 0) // which leaves the offset at the beginning
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
