package verdict

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// meaning is what a frame of a library says about the task.
type meaning int

const (
	meansCollective meaning = iota + 1 // it waits for other tasks
	meansInput
	meansSaving
	meansExporting
	meansValidation
	meansComputing
	meansExit
	meansLock    // it waits for a lock, a thread or a process
	meansNetwork // it waits for the network
	meansNative  // native code runs, which computes or waits for other tasks
)

// marker recognizes frames by their file and function.
type marker struct {
	meaning  meaning
	file     string // regular expression, of the end of the path
	function string // regular expression, of the whole name; "": every function
	name     string // of the collective operation, or what it is in a verdict
}

// Names of collective operations.
const (
	allReduce = "all-reduce"
	barrier   = "barrier"
)

// feedInput is the name of the marker of records that `train DATA` feeds.
const feedInput = "waiting for records of the feed"

// markers are in the order in which they are tried.
func markers() []marker {
	return []marker{
		// tfcluster
		{meansCollective, `tfcluster/collective\.py`, `all_reduce`, allReduce},
		{meansCollective, `tfcluster/collective\.py`, `broadcast`, "broadcast"},
		{meansCollective, `tfcluster/collective\.py`, `all_gather`, "all-gather"},
		{meansCollective, `tfcluster/collective\.py`, `barrier`, barrier},
		{meansCollective, `tfcluster/collective\.py`, `_joined|rank|size`, "first collective operation"},
		{meansCollective, `tfcluster/context\.py`, `barrier`, barrier},
		{meansInput, `tfcluster/feed(_reader|_dataset|_thread)?\.py`, ``, feedInput},
		{meansExporting, `tfcluster/context\.py`, `export_saved_model`, ""},
		{meansExit, `tfcluster/runner\.py`, `leave`, ""},
		// TensorFlow
		{meansCollective, `tensorflow/python/ops/(gen_)?collective_ops\.py`, `.*reduce.*`, allReduce},
		{meansCollective, `tensorflow/python/ops/(gen_)?collective_ops\.py`, `.*gather.*`, "all-gather"},
		{meansCollective, `tensorflow/python/ops/(gen_)?collective_ops\.py`, `.*(bcast|broadcast).*`, "broadcast"},
		{meansCollective, `tensorflow/python/distribute/cross_device_(ops|utils)\.py`, `.*reduce.*`, allReduce},
		{meansCollective, `tensorflow/python/distribute/cross_device_(ops|utils)\.py`, `.*gather.*`, "all-gather"},
		{meansCollective, `tensorflow/python/eager/context\.py`, `ensure_initialized|_initialize_.*|configure_coordination_service|enable_collective_ops`, "start of the cluster"},
		{meansCollective, `tensorflow/python/eager/context\.py`, `.*barrier.*`, barrier},
		{meansCollective, `tensorflow/python/distribute/coordinator/(cluster_coordinator|remote_value|watchdog|utils)\.py`, `.*(join|wait|fetch|done|get|schedule).*`, "results of the workers"},
		{meansInput, `tensorflow/python/ops/gen_dataset_ops\.py`, `.*get_next.*`, ""},
		{meansInput, `tensorflow/python/data/ops/(iterator_ops|multi_device_iterator_ops)\.py`, `.*next.*`, ""},
		{meansInput, `tensorflow/python/distribute/input_lib\.py`, `.*next.*`, ""},
		{meansInput, `tensorflow/python/data/ops/from_generator_op\.py`, ``, ""},
		{meansExporting, `tensorflow/python/saved_model/save\.py`, ``, ""},
		{meansSaving, `tensorflow/python/(checkpoint/\w+|training/saver|training/checkpoint_management|training/saving/\w+)\.py`, `.*(save|write|restore|read).*`, ""},
		{meansComputing, `tensorflow/python/eager/polymorphic_function/tracing_compilation\.py`, `.*create_concrete_function.*`, ""},
		{meansNative, `tensorflow/python/(eager|ops)/\w+\.py`, ``, ""},
		// Keras
		{meansExporting, `keras/src/export/\w+\.py`, ``, ""},
		{meansSaving, `keras/src/saving/(\w+/)*\w+\.py`, ``, ""},
		{meansSaving, `keras/src/callbacks/(model_checkpoint|backup_and_restore)\.py`, `.*save.*`, ""},
		{meansSaving, `keras/src/(models/model|engine/training)\.py`, `save\w*|load\w*`, ""},
		{meansExporting, `keras/src/(models/model|engine/training)\.py`, `export`, ""},
		{meansInput, `keras/src/trainers/data_adapters/\w+\.py`, ``, ""},
		{meansInput, `keras/src/utils/data_utils\.py`, ``, ""},
		{meansValidation, `keras/src/(backend/\w+/trainer|engine/training)\.py`, `evaluate`, ""},
		// JAX. Flax and Orbax save its checkpoints.
		{meansCollective, `jax/experimental/multihost_utils\.py`, `sync_global_devices`, barrier},
		{meansCollective, `jax/experimental/multihost_utils\.py`, `broadcast.*`, "broadcast"},
		{meansCollective, `jax/experimental/multihost_utils\.py`, `process_allgather`, "all-gather"},
		{meansCollective, `jax/_src/distributed\.py`, `initialize`, "start of the cluster"},
		{meansExit, `jax/_src/distributed\.py`, `shutdown`, ""},
		{meansComputing, `jax/_src/(compiler|interpreters/mlir|interpreters/partial_eval)\.py`, `.*(compile|lower|trace).*`, ""},
		{meansSaving, `(orbax/\S+|flax/training/\w+|flax/serialization)\.py`, `.*(save|restore|load|wait_until_finished).*`, ""},
		{meansNative, `(jax/_src/(\w+/)*\w+|keras/src/backend/jax/\w+)\.py`, ``, ""},
		// PyTorch. Lightning, Accelerate and Transformers call it.
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*all_?reduce.*|reduce|reduce_scatter\w*`, allReduce},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*gather.*`, "all-gather"},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*broadcast.*`, "broadcast"},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*barrier.*`, barrier},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*scatter.*|all_to_all\w*|send|recv|isend|irecv|wait`, ""},
		{meansCollective, `torch/distributed/(distributed_c10d|rendezvous|elastic/\S+)\.py`, `init_process_group|new_group|.*rendezvous.*|_new_process_group_helper|_store_based_barrier`, "start of the group"},
		{meansCollective, `torch/distributed/_functional_collectives\.py`, ``, ""},
		{meansInput, `torch/utils/data/(\w+/)*\w+\.py`, ``, ""},
		{meansSaving, `torch/(serialization|distributed/checkpoint/\w+)\.py`, ``, ""},
		{meansSaving, `(lightning|pytorch_lightning)/\S*(checkpoint|model_checkpoint)\w*\.py`, `.*(save|load).*`, ""},
		{meansSaving, `transformers/trainer\.py`, `_?save\w*|_load\w*`, ""},
		{meansValidation, `(lightning|pytorch_lightning)/\S*evaluation_loop\.py`, ``, ""},
		{meansValidation, `transformers/trainer\.py`, `evaluat\w*|prediction_\w*`, ""},
		{meansNative, `torch/(autograd/(graph|__init__|function)|nn/parallel/distributed|_tensor|cuda/\w+|_ops|nn/modules/module|nn/functional)\.py`, ``, ""},
		// Python. Data sets of Hugging Face and others read by it.
		{meansInput, `(datasets|tensorflow_datasets|grain|webdataset|petastorm)/\S+\.py`, `.*(next|iter|get|read).*`, ""},
		{meansSaving, `(h5py/_hl/\w+|safetensors/\w+)\.py`, `.*(save|File|write|create).*`, ""},
		{meansExit, `(threading|concurrent/futures/thread|concurrent/futures/process|multiprocessing/util)\.py`, `_shutdown|_python_exit|_exit_function`, ""},
		{meansLock, `(threading|queue|_weakrefset)\.py`, `wait\w*|acquire|join|get|put|_wait_for_tstate_lock`, "waiting for a lock"},
		{meansLock, `concurrent/futures/\w+\.py`, `result|wait|exception|map|result_iterator`, "waiting for a thread"},
		{meansLock, `(multiprocessing/\w+|subprocess)\.py`, `.*(wait|get|put|join|recv|poll|communicate|acquire|map).*`, "waiting for a child process"},
		{meansNetwork, `(socket|ssl|http/client|urllib/\w+|urllib3/\w+|requests/\w+|asyncio/\w+|grpc/_channel|botocore/\w+|fsspec/\w+|aiohttp/\w+)\.py`, ``, "waiting for the network"},
	}
}

// compiled is a marker with its expressions compiled.
type compiled struct {
	marker
	path, name *regexp.Regexp // name is nil if every function matches
}

var compiledMarkers = sync.OnceValue(func() []compiled {
	var all []compiled
	for _, m := range markers() {
		c := compiled{marker: m, path: regexp.MustCompile(`(^|/)(?:` + m.file + `)$`)}
		if m.function != "" {
			c.name = regexp.MustCompile(`^(?:` + m.function + `)$`)
		}
		all = append(all, c)
	}
	return all
})

// markerOf returns the marker of a frame of a library; nil: it says nothing.
func markerOf(f *clusterpb.Frame) *marker {
	function := base(f.GetFunction())
	for i := range compiledMarkers() {
		c := &compiledMarkers()[i]
		if c.path.MatchString(f.GetFile()) && (c.name == nil || c.name.MatchString(function)) {
			return &c.marker
		}
	}
	return nil
}

// local is a function's qualified name without the functions that it is defined in: Loader.next for
// main.<locals>.Loader.next.
func local(function string) string {
	const defined = "<locals>."
	if at := strings.LastIndex(function, defined); at >= 0 {
		return function[at+len(defined):]
	}
	return function
}

// base is a function's name without its class.
func base(function string) string {
	function = local(function)
	return function[strings.LastIndex(function, ".")+1:]
}

// place is where a frame of the program is: load_batch (mnist.py:33).
func place(f *clusterpb.Frame) string {
	at := shortened(path.Base(f.GetFile()))
	if f.GetLine() > 0 {
		at = fmt.Sprintf("%s:%d", at, f.GetLine())
	}
	if name := local(f.GetFunction()); name != "" && name != "<module>" {
		at = fmt.Sprintf("%s (%s)", shortened(name), at)
	}
	return at
}

// longest is the number of characters of a function's name that a verdict has.
const longest = 60

func shortened(name string) string {
	if runes := []rune(name); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return name
}

// phases match the names of a program's functions that say what it does outside of training steps.
var phases = sync.OnceValue(func() map[Phase]*regexp.Regexp {
	return map[Phase]*regexp.Regexp{
		Exporting:  regexp.MustCompile(`(?i)^_*export(_|$)`),
		Saving:     regexp.MustCompile(`(?i)^_*(save|checkpoint|ckpt|(write|load|restore)_(model|checkpoint|weights))(_|$)`),
		Validation: regexp.MustCompile(`(?i)^_*(eval|evaluate|evaluation|validate|validation|val|test_(step|epoch|loop|model)|predict|inference)(_|$)`),
	}
})

// loading matches functions that load what others have saved.
var loading = lazyre.New(`(?i)^_*(load|restore)(_|$)`)

// phaseOf returns what the name of a function of the program says it does; NoPhase: nothing.
func phaseOf(function string) Phase {
	function = base(function)
	for _, p := range []Phase{Exporting, Saving, Validation} {
		if phases()[p].MatchString(function) {
			return p
		}
	}
	return NoPhase
}
