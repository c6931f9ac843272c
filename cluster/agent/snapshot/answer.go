package snapshot

import (
	"encoding/json"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Registration is a task's message that faulthandler writes its stacks at a signal (tfcluster/stacks.py). Without
// faulthandler the signal would end the task.
type Registration struct {
	Signal     int    `json:"signal"`
	Descriptor int    `json:"descriptor"` // of the memory file for the stacks
	Thread     int    `json:"thread"`     // native number of the thread that answers and gets the signal
	ThreadID   uint64 `json:"thread_id"`  // the same thread, by threading.get_ident()
	Main       uint64 `json:"main"`       // the main thread, by threading.get_ident()
}

// Answer is a task's answer to a question. The task's own thread sends it.
type Answer struct {
	Question   int32          `json:"question"`
	Registered bool           `json:"registered"` // faulthandler still handles the signal
	Threads    []answerThread `json:"threads"`
	LeftOut    int32          `json:"threads_left_out"`
}

type answerThread struct {
	ID       uint64        `json:"id"`
	NativeID int32         `json:"native_id"`
	Name     string        `json:"name"`
	Main     bool          `json:"main"`
	Frames   []answerFrame `json:"frames"`
	LeftOut  int32         `json:"frames_left_out"`
}

// answerFrame is [function, file, line, code].
type answerFrame struct {
	function, file string
	line           int32
	code           string
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *answerFrame) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[...]any{&f.function, &f.file, &f.line, &f.code})
}

// stacks returns the threads within the limits of a snapshot.
func (a *Answer) stacks() (threads []*clusterpb.ThreadStack, leftOut int32) {
	for _, t := range a.Threads {
		s := &clusterpb.ThreadStack{
			Id: t.ID, NativeId: t.NativeID, Name: oneLine(t.Name, maxName), Main: t.Main, FramesLeftOut: max(0, t.LeftOut),
		}
		for _, f := range t.Frames {
			s.Frames = append(s.Frames, &clusterpb.Frame{
				Function: oneLine(f.function, maxName), File: oneLine(f.file, maxFile), Line: max(0, f.line),
				Code: oneLine(f.code, maxCode),
			})
		}
		threads = append(threads, s)
	}
	threads, leftOut = tidy(threads)
	return threads, leftOut + max(0, a.LeftOut)
}
