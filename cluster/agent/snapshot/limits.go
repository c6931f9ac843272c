package snapshot

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/excerpt"
	"github.com/tfcluster/tfcluster/internal/termtext"
)

// Limits of a snapshot. They also apply to data of the program, which is not trusted.
const (
	maxThreads  = 256
	maxFrames   = 100     // of a thread
	maxFile     = 512     // bytes of a file's path
	maxName     = 200     // bytes of a function's or thread's name
	maxCode     = 200     // bytes of a line of source
	maxCommand  = 200     // bytes of a command
	maxChildren = 64      // processes
	maxOthers   = 32      // threads that are not Python's
	maxNative   = 256_000 // bytes of py-spy's text
	maxSize     = 2 << 20 // bytes of a snapshot, below the limit of a message to a client
)

// oneLine returns s as valid UTF-8 text in one line of n bytes at most, without control characters, which would
// change the state of a terminal.
func oneLine(s string, n int) string { return limited(strings.ReplaceAll(s, "\n", " "), n) }

// limited returns s as valid UTF-8 text of n bytes at most, without control characters except line ends.
func limited(s string, n int) string {
	s = termtext.Visible(s)
	if len(s) <= n {
		return s
	}
	return s[:excerpt.WholeRunes([]byte(s[:n]))] + "…"
}

// tidy puts the main thread first, removes the frames from which tfcluster runs the program, and enforces the limits.
func tidy(threads []*clusterpb.ThreadStack) (kept []*clusterpb.ThreadStack, leftOut int32) {
	for _, t := range threads {
		for n := len(t.Frames); n > 0 && t.Frames[n-1].Starts(); n-- {
			t.Frames, t.FramesLeftOut = t.Frames[:n-1], 0
		}
		if over := len(t.Frames) - maxFrames; over > 0 {
			t.Frames, t.FramesLeftOut = t.Frames[:maxFrames], t.FramesLeftOut+int32(over)
		}
		if t.Main {
			kept = append([]*clusterpb.ThreadStack{t}, kept...)
		} else {
			kept = append(kept, t)
		}
	}
	if over := len(kept) - maxThreads; over > 0 {
		kept, leftOut = kept[:maxThreads], int32(over)
	}
	return kept, leftOut
}

// fit removes threads until the snapshot has at most maxSize bytes.
func fit(s *clusterpb.Snapshot) {
	for proto.Size(s) > maxSize && len(s.GetThreads()) > 1 {
		half := len(s.GetThreads()) / 2
		s.ThreadsLeftOut += int32(len(s.GetThreads()) - half)
		s.Threads = s.GetThreads()[:half]
	}
}
