package interpreter

import (
	"maps"
	"os"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// importTime are the variables that Python or TensorFlow read at import: a task with other
// values cannot be forked.
var importTime = map[string]bool{
	"KERAS_BACKEND": true, "TF_USE_LEGACY_KERAS": true, "XLA_FLAGS": true, "TF_XLA_FLAGS": true,
	"TF_CPP_MIN_LOG_LEVEL": true, "TF_CPP_MAX_VLOG_LEVEL": true, "TF_ENABLE_ONEDNN_OPTS": true,
	"PYTHONPATH": true, "PYTHONHASHSEED": true, "PYTHONWARNINGS": true, "LD_LIBRARY_PATH": true,
	"LD_PRELOAD": true, "OMP_NUM_THREADS": true, "KERAS_HOME": true,
}

// importEnv returns the importTime variables of this process, and all that a task's environment sets.
func importEnv(want *clusterpb.WarmUp) map[string]string {
	env := map[string]string{}
	for k := range importTime {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	maps.Copy(env, want.GetEnv())
	return env
}

// NeedsFresh returns whether an environment sets an importTime variable to another value than
// the zygote's.
func NeedsFresh(env, imported map[string]string) bool {
	for k, v := range env {
		if importTime[k] && imported[k] != v {
			return true
		}
	}
	return false
}

// WithoutPackage restores a command's PYTHONPATH: the zygote's has the package tfcluster in it.
// A requested PYTHONPATH is kept.
func (r *SpawnRequest) WithoutPackage() {
	if _, asked := r.Env[pythonPath]; asked {
		return
	}
	if own, ok := os.LookupEnv(pythonPath); ok {
		r.Env[pythonPath] = own
	} else {
		r.Unset = append(r.Unset, pythonPath)
	}
}

// WithPackage prepends the package tfcluster to a Python task's PYTHONPATH, for tasks of a
// forker and tasks that request their own PYTHONPATH.
func (r *SpawnRequest) WithPackage(i *Interpreter) {
	ours, plain := i.PackagePath()
	rest, asked := r.Env[pythonPath]
	switch {
	case asked:
	case plain:
		rest = os.Getenv(pythonPath)
	default:
		return
	}
	r.Env[pythonPath] = prependPath(ours, rest)
}

const pythonPath = "PYTHONPATH"

func prependPath(ours, rest string) string {
	if rest == "" {
		return ours
	}
	return ours + string(os.PathListSeparator) + rest
}
