package interpreter

import "os"

// importTime are the variables that Python or TensorFlow read when they are
// imported: a task that needs other values cannot be a fork.
var importTime = map[string]bool{
	"KERAS_BACKEND": true, "TF_USE_LEGACY_KERAS": true, "XLA_FLAGS": true, "TF_XLA_FLAGS": true,
	"TF_CPP_MIN_LOG_LEVEL": true, "TF_CPP_MAX_VLOG_LEVEL": true, "TF_ENABLE_ONEDNN_OPTS": true,
	"PYTHONPATH": true, "PYTHONHASHSEED": true, "PYTHONWARNINGS": true, "LD_LIBRARY_PATH": true,
	"LD_PRELOAD": true, "OMP_NUM_THREADS": true, "KERAS_HOME": true,
}

// NeedsFresh tells whether an environment has what a fork would take up too late.
func NeedsFresh(env, imported map[string]string) bool {
	for k, v := range env {
		if importTime[k] && imported[k] != v {
			return true
		}
	}
	return false
}

// WithoutPackage gives a command the PYTHONPATH that it would have without us: the zygote's
// holds our package before it, for tasks that are our Python. One that was asked for stays.
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

// WithPackage has a task that is our Python find our package, before what else it would
// search: a forker's, and one for which another PYTHONPATH was asked than its zygote's.
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
	r.Env[pythonPath] = searching(ours, rest)
}

// pythonPath is the variable that names where a Python searches.
const pythonPath = "PYTHONPATH"

// searching is its value where ours comes before what else there is.
func searching(ours, rest string) string {
	if rest == "" {
		return ours
	}
	return ours + string(os.PathListSeparator) + rest
}
