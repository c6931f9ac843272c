package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// runnerSpec is the input of tfcluster.runner, which runs a task's program.
type runnerSpec struct {
	Task       string      `json:"task"`
	Kind       string      `json:"kind"`
	Name       string      `json:"name"`
	Body       string      `json:"body"`
	Args       string      `json:"args"`
	Words      []string    `json:"words"`
	Modules    string      `json:"modules"`
	ModulesDir string      `json:"modules_dir"`
	Function   string      `json:"function"`
	Path       string      `json:"path"`
	Requested  float64     `json:"requested"`
	Absent     string      `json:"absent"` // the notebook's folder, where the task does not start in it
	Context    taskContext `json:"context"`
	// Options are the run's, by their names in cluster.proto.
	Options json.RawMessage `json:"options"`
}

// taskContext has the attributes of ctx.
type taskContext struct {
	JobName     string `json:"job_name"`
	TaskIndex   int    `json:"task_index"`
	NumWorkers  int32  `json:"num_workers"`
	ClusterSpec string `json:"cluster_spec"`
	ExecutorID  int32  `json:"executor_id"`
	DefaultFS   string `json:"default_fs"`
	Resumed     bool   `json:"resumed"`
	Host        string `json:"host"` // this machine's name to show
	taskFolders
}

// taskFolders are the folders in ctx.
type taskFolders struct {
	WorkingDir    string `json:"working_dir"`
	Dir           string `json:"dir"`
	LogDir        string `json:"log_dir"`
	CheckpointDir string `json:"checkpoint_dir"`
	ExportDir     string `json:"export_dir"`
	CopyDir       string `json:"copy_dir"` // for ctx.local_copy
}

var kinds = map[clusterpb.Program_Kind]string{
	clusterpb.Program_FUNCTION: "function",
	clusterpb.Program_SCRIPT:   "script",
	clusterpb.Program_CELL:     "cell",
	clusterpb.Program_COMMAND:  "command",
}

// prepare fetches a task's files and returns how to fork it.
func (a *Agent) prepare(ctx context.Context, t *task) (interpreter.SpawnRequest, error) {
	l := t.launch
	program, directories := l.GetProgram(), l.GetDirectories()
	cwd, err := a.workingDir(ctx, t)
	if err != nil {
		return interpreter.SpawnRequest{}, err
	}
	env, err := a.taskEnv(l)
	if err != nil {
		return interpreter.SpawnRequest{}, err
	}
	request := interpreter.SpawnRequest{ID: t.id, Env: env, Cwd: cwd}
	for _, dir := range []string{directories.GetLogs(), directories.GetCheckpoints(), directories.GetExport()} {
		if local, ok := localDir(dir); ok {
			if err := os.MkdirAll(local, 0o700); err != nil {
				return interpreter.SpawnRequest{}, fmt.Errorf("make a folder of the run below --dir: %w", err)
			}
		}
	}
	if program.GetKind() == clusterpb.Program_COMMAND {
		if request.Argv = program.GetWords(); len(request.Argv) == 0 {
			return interpreter.SpawnRequest{},
				errors.New("the command of the task's role is empty: give one with --ROLE-command")
		}
		request.WithoutPackage()
		return request, nil
	}
	if err := a.python.Starter.Extract(); err != nil { // the forker does not do it
		return interpreter.SpawnRequest{}, err
	}
	request.WithPackage(a.python)
	kind, ok := kinds[program.GetKind()]
	if !ok {
		return interpreter.SpawnRequest{}, errtext.Fault("the agent cannot run a program of kind %v", program.GetKind())
	}
	role, index, err := splitTask(l.GetTask())
	if err != nil {
		return interpreter.SpawnRequest{}, err
	}
	options, err := l.GetOptions().JSON()
	if err != nil {
		return interpreter.SpawnRequest{}, err
	}
	spec := &runnerSpec{
		Task: l.GetTask(), Kind: kind, Name: program.GetName(), Words: program.GetWords(),
		Function: program.GetFunction(), Path: program.GetPath(), Options: options,
		Requested: float64(time.Now().UnixNano()) / 1e9,
		Context: taskContext{
			JobName: role, TaskIndex: index, NumWorkers: l.GetNumWorkers(), ClusterSpec: l.GetClusterSpec(),
			ExecutorID: l.GetExecutorNumber(), DefaultFS: l.GetDefaultFs(),
			Resumed: l.GetResumed(), Host: a.self.host,
			taskFolders: taskFolders{
				WorkingDir: t.reportedDir(cwd), Dir: directories.GetDir(), LogDir: directories.GetLogs(),
				CheckpointDir: directories.GetCheckpoints(), ExportDir: directories.GetExport(), CopyDir: a.disk.own.copies(),
			},
		},
	}
	if t.disk.folder != "" {
		spec.Absent = l.GetOptions().GetWorkingDir()
	}
	request.Spec = spec
	return request, a.fetch(ctx, t, spec)
}

// fetch fetches the program's blobs, which are kept while the task lives, and adds their paths
// to spec.
func (a *Agent) fetch(ctx context.Context, t *task, spec *runnerSpec) error {
	program := t.launch.GetProgram()
	for _, want := range []struct {
		blob *clusterpb.Blob
		path *string
	}{{program.GetBody(), &spec.Body}, {program.GetArgs(), &spec.Args}, {program.GetModules(), &spec.Modules}} {
		f, err := a.disk.blobs.hold(ctx, want.blob)
		if err != nil {
			return err
		}
		if f != nil {
			*want.path = f.Name()
			t.disk.blobs = append(t.disk.blobs, f)
		}
	}
	if spec.Body == "" {
		f, err := a.disk.blobs.empty(ctx) // an empty cell or script has no blob
		if err != nil {
			return err
		}
		spec.Body = f.Name()
		t.disk.blobs = append(t.disk.blobs, f)
	}
	if spec.Modules != "" {
		parent := filepath.Join(a.cfg.GetFolders().GetRuntimeDir(), "modules")
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return fmt.Errorf("make the folder of the program's modules: %w", err)
		}
		spec.ModulesDir = filepath.Join(parent, filepath.Base(spec.Modules))
	}
	return nil
}

// taskEnv returns a task's environment on top of its zygote's: the agent's variables, then the
// launch's.
func (a *Agent) taskEnv(l *clusterpb.Launch) (map[string]string, error) {
	env := map[string]string{
		"TF_GRPC_REUSE_PORT":   "true", // otherwise TensorFlow cannot bind the held port
		"CUDA_VISIBLE_DEVICES": a.gpus.held.Visible(),
		"CUDA_DEVICE_ORDER":    "PCI_BUS_ID",
	}
	setThreads(env, int(a.cfg.GetThreads()), runtime.NumCPU())
	theirs, err := l.Environment()
	if err != nil {
		return nil, fmt.Errorf("make the task's environment: %w", err)
	}
	maps.Copy(env, theirs)
	return env, nil
}

// leastInterOp is the minimum number of inter-op threads of a task. With one thread a program
// under ParameterServerStrategy deadlocks: the coordinator's scheduled function occupies the
// thread that its input needs. TensorFlow's default is the number of cores.
const leastInterOp = 4

// setThreads sets the sizes of TensorFlow's thread pools in a task's environment, unless this
// process's environment has them: the intra-op pool, which computes, gets the executor's share
// of the cores (0: unknown); the inter-op pool, which waits, at least leastInterOp. Unlike
// OMP_NUM_THREADS they are read after the import.
func setThreads(env map[string]string, share, cores int) {
	set := func(name string, n int) {
		if _, own := os.LookupEnv(name); !own {
			env[name] = strconv.Itoa(n)
		}
	}
	if share > 0 {
		set("TF_NUM_INTRAOP_THREADS", share)
	}
	if cores < leastInterOp {
		set("TF_NUM_INTEROP_THREADS", leastInterOp)
	}
}

// workingDir returns the folder in which the task starts: --working-dir; the notebook's folder,
// if it exists here and no files were shipped for another host; otherwise the task's own
// folder, or the run's.
func (a *Agent) workingDir(ctx context.Context, t *task) (string, error) {
	directories := t.launch.GetDirectories()
	apart := a.disk.files != nil
	if given := t.launch.GetOptions().GetStartIn(); given != "" {
		if !isDir(given) {
			return "", fmt.Errorf("--working-dir %s is not a folder on %s: give one that every executor has", given, a.self.host)
		}
		return given, nil
	}
	if isDir(directories.GetWorking()) && (!apart || len(t.launch.GetFiles()) == 0) {
		return directories.GetWorking(), nil
	}
	if apart {
		return a.workFolder(ctx, t)
	}
	dir, ok := localDir(directories.GetDir())
	if !ok || os.MkdirAll(dir, 0o700) != nil {
		dir = a.cfg.GetFolders().GetRuntimeDir()
	}
	if directories.GetWorking() != "" {
		t.note(fmt.Sprintf("%s is not on %s: the program starts in %s", directories.GetWorking(), a.self.host, dir), true)
	}
	return dir, nil
}

// reportedDir returns ctx.working_dir.
func (t *task) reportedDir(cwd string) string {
	if t.disk.folder != "" || t.launch.GetOptions().GetStartIn() != "" {
		return cwd
	}
	return t.launch.GetDirectories().GetWorking()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// localDir returns the path of a directory that is on this machine's file systems.
func localDir(dir string) (path string, ok bool) {
	path = strings.TrimPrefix(dir, "file://")
	return path, filepath.IsAbs(path)
}

// splitTask parses "worker:1"; a role alone means its task 0.
func splitTask(name string) (role string, index int, err error) {
	role, number, ok := strings.Cut(name, ":")
	if !ok {
		return name, 0, nil
	}
	index, err = strconv.Atoi(number)
	if err != nil || role == "" || index < 0 {
		return "", 0, errtext.Fault("task %q: want a role and an index, like worker:1", name)
	}
	return role, index, nil
}
