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
var ownFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`/python-[0-9a-f]+/tfcluster/\w+\.py$`) })

// Own returns whether the frame is of tfcluster's Python.
func (x *Frame) Own() bool { return ownFile().MatchString(x.GetFile()) }

// Library returns whether the frame is of a library, of Python's own or of tfcluster's, judging
// by its file's path, instead of the user's program.
func (x *Frame) Library() bool {
	file := x.GetFile()
	return file == "" || strings.HasPrefix(file, "<frozen ") || strings.Contains(file, "/site-packages/") || strings.Contains(file, "/dist-packages/") ||
		strings.Contains(file, "/lib/python3") || x.Own()
}

// Starts returns whether tfcluster, or Python for it, runs the program from this frame: those
// frames are the outermost of a task's main thread.
func (x *Frame) Starts() bool { return x.Own() || strings.HasPrefix(x.GetFile(), "<frozen runpy>") }
