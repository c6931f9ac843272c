package clusterpb

import (
	"regexp"
	"strings"
	"sync"
)

// Where the stacks of a snapshot are from (Snapshot.source).
const (
	FromPython       = "python"
	FromFaulthandler = "faulthandler"
	FromProc         = "proc"
)

// CollectingGarbage is the function of a frame in which Python collects garbage, as faulthandler
// names it. Such a frame has no file.
const CollectingGarbage = "Garbage-collecting"

// ownFile matches files of tfcluster's Python as executors have it.
var ownFile = sync.OnceValue(
	func() *regexp.Regexp { return regexp.MustCompile(`/python-[0-9a-f]+/tfcluster/\w+\.py$`) })

// Own returns whether the frame is of tfcluster's Python.
func (x *Frame) Own() bool { return ownFile().MatchString(x.GetFile()) }

// libraries matches files of libraries and of Python's own, also of libraries in a folder of PYTHONPATH, and the code
// that TensorFlow's AutoGraph generates.
var libraries = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python3|/python3\d+\.zip/|^<frozen ` +
		`|^<string>$|^<__array_function__|__autograph_generated_file` +
		`|/(keras|tf_keras)/src/|/tensorflow/(python|core)/|/jax/(_src|experimental|interpreters|extend)/|/jaxlib/|/numpy/` +
		`(_core|core|lib|linalg|random|fft|ma)/` +
		`|/torch/(_\w+|nn|autograd|distributed|utils|optim|cuda|multiprocessing|fx|amp|jit|functional|` +
		`serialization)(/|\.py$)`)
})

// Library returns whether the frame is of a library, of Python's own or of tfcluster's, judging
// by its file's path, instead of the user's program.
func (x *Frame) Library() bool {
	return x.GetFile() == "" || libraries().MatchString(x.GetFile()) || x.Own()
}

// Starts returns whether tfcluster, or Python for it, runs the program from this frame: those
// frames are the outermost of a task's main thread.
func (x *Frame) Starts() bool { return x.Own() || strings.HasPrefix(x.GetFile(), "<frozen runpy>") }
