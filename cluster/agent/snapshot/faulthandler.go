package snapshot

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// faulthandlerHead matches the line before the frames of a thread; Python 3.14 adds the thread's name.
var faulthandlerHead = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^(?:Current thread|Thread) 0x([0-9a-fA-F]{1,16})(?: \[(.*)\])? \(most recent call first\):$`)
})

// faulthandlerFrame matches the line of a frame. Quotes in it are not escaped: the last one ends the file.
var faulthandlerFrame = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^  File (?:"(.*)"|\?\?\?), line (\d+|\?\?\?) in (.*)$`)
})

// parseFaulthandler returns the threads that Python's faulthandler wrote (CPython's Python/traceback.c,
// _Py_DumpTracebackThreads). It skips lines that it does not know. If a thread was written twice, its last stack
// counts: the handler may run late, for an earlier signal, and then once more. more reports whether threads are
// missing: the handler writes the 100 threads that were started last, so the main thread may be missing.
func parseFaulthandler(text string) (threads []*clusterpb.ThreadStack, more bool) {
	place := map[uint64]int{}
	var current *clusterpb.ThreadStack
	for line := range strings.SplitSeq(text, "\n") {
		if head := faulthandlerHead().FindStringSubmatch(line); head != nil {
			id, err := strconv.ParseUint(head[1], 16, 64)
			if err != nil || id == 0 {
				current = nil
				continue
			}
			current = &clusterpb.ThreadStack{Id: id, Name: oneLine(unescape(head[2]), maxName)}
			if at, again := place[id]; again {
				threads[at] = current
				continue
			}
			place[id] = len(threads)
			threads = append(threads, current)
			continue
		}
		if line == "..." {
			more, current = true, nil
		}
		if current == nil {
			continue
		}
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "...": // more than 100 frames
			current.FramesLeftOut = 1
		case line == "  "+clusterpb.CollectingGarbage:
			current.Frames = append(current.Frames, &clusterpb.Frame{Function: clusterpb.CollectingGarbage})
		default:
			if f := parseFrame(line); f != nil {
				current.Frames = append(current.Frames, f)
			} else if !strings.HasPrefix(line, " ") {
				current = nil // the list of threads is over
			}
		}
	}
	return threads, more
}

// parseFrame returns the frame of a line; nil if it is not one.
func parseFrame(line string) *clusterpb.Frame {
	m := faulthandlerFrame().FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	number, err := strconv.ParseInt(m[2], 10, 32)
	if err != nil {
		number = 0 // ???
	}
	return &clusterpb.Frame{
		File: oneLine(unescape(m[1]), maxFile), Line: int32(number), Function: oneLine(unescape(m[3]), maxName),
	}
}

// unescape decodes the characters that faulthandler writes as \xHH, \uHHHH or \UHHHHHHHH: all
// that are not printable ASCII. A backslash itself is not escaped there, so a path that contains
// such a sequence is decoded too.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}
	var out strings.Builder
	for i := 0; i < len(s); {
		if s[i] == '\\' && i+1 < len(s) && digits[s[i+1]] > 0 && i+2+digits[s[i+1]] <= len(s) {
			end := i + 2 + digits[s[i+1]]
			if n, err := strconv.ParseUint(s[i+2:end], 16, 32); err == nil && n <= utf8.MaxRune && utf8.ValidRune(rune(n)) {
				out.WriteRune(rune(n))
				i = end
				continue
			}
		}
		out.WriteByte(s[i])
		i++
	}
	return out.String()
}
