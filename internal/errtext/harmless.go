package errtext

import (
	"regexp"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// HarmlessMessage is a message of TensorFlow's.
type HarmlessMessage struct {
	Source string // the source file that the line names, "" where it names none
	Text   string // what the message holds, up to the first part that varies
	Why    string
}

// HarmlessMessages returns the messages that TensorFlow writes in every good run. docs/logs.md lists them.
func HarmlessMessages() []HarmlessMessage {
	return []HarmlessMessage{
		{
			"dataset.cc", "Input of GeneratorDatasetOp::Dataset will not be optimized",
			"Keras reads NumPy arrays through a generator, which tf.data does not optimise",
		},
		{
			"local_rendezvous.cc", "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
			"a data set came to its end",
		},
		{"computation_placer.cc", "computation placer already registered", "XLA is linked in twice"},
		{"cuda_dnn.cc", "Unable to register cuDNN factory", "XLA is linked in twice"},
		{"cuda_fft.cc", "Unable to register cuFFT factory", "XLA is linked in twice"},
		{"cuda_blas.cc", "Unable to register cuBLAS factory", "XLA is linked in twice"},
		{
			"cuda_platform.cc", "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
			"the package tensorflow, which can use GPUs, on a machine without a driver for them; tensorflow-cpu does not ask",
		},
		{"port.cc", "oneDNN custom operations are on", "rounding may differ between machines"},
		{
			"cpu_feature_guard.cc", "This TensorFlow binary is optimized to use available CPU instructions",
			"a line about the build",
		},
		{
			"", "in other operations, rebuild TensorFlow with the appropriate compiler flags",
			"the second half of the line above",
		},
		{"py_utils.cc", "TF-TRT Warning: Could not find TensorRT", "TensorRT is for inference"},
		{"", "All log messages before absl::InitializeLog() is called are written to STDERR", "a line about the log itself"},
	}
}

// head is how TensorFlow and absl begin a line: a time and a level, or a level with a time and
// the thread, then the source file and line.
const head = `^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE]|[IWE]\d{4} [\d:.]+ +\d+) (\S*/)?`

var messages = sync.OnceValue(func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, m := range HarmlessMessages() {
		if m.Source == "" {
			all = append(all, regexp.MustCompile(regexp.QuoteMeta(m.Text)))
			continue
		}
		all = append(all, regexp.MustCompile(head+regexp.QuoteMeta(m.Source)+`:\d+\] .*`+regexp.QuoteMeta(m.Text)))
	}
	return all
})

// ownFrame is what faulthandler writes of a frame of tfcluster's Python, below which the program runs.
var ownFrame = lazyre.New(`^  File "(.*/python-[0-9a-f]+/tfcluster/\w+\.py|<frozen runpy>)", line \d+ in \w+`)

// Harmless reports whether a line of a task's standard error is one of the messages, or a frame
// of tfcluster's own where a task wrote what its threads are doing.
func Harmless(text string) bool {
	if strings.HasPrefix(text, "  File ") && ownFrame().MatchString(text) {
		return true
	}
	for i, m := range HarmlessMessages() {
		if strings.Contains(text, m.Text) && messages()[i].MatchString(text) {
			return true
		}
	}
	return false
}
