package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shown returns threads in a short form for comparison.
func shown(threads []*clusterpb.ThreadStack) string {
	var out []string
	for _, t := range threads {
		var frames []string
		for _, f := range t.GetFrames() {
			frames = append(frames, fmt.Sprintf("%s %s:%d", f.GetFunction(), f.GetFile(), f.GetLine()))
		}
		line := fmt.Sprintf("%x[%s] %s", t.GetId(), t.GetName(), strings.Join(frames, " < "))
		if t.GetFramesLeftOut() > 0 {
			line += " …"
		}
		out = append(out, strings.TrimSpace(line))
	}
	return strings.Join(out, "\n")
}

// TestParseFaulthandler: texts in the forms of Python 3.9 to 3.14.
func TestParseFaulthandler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"two threads", `Thread 0x00007f1c2e7fc640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f1c3b0d6740 (most recent call first):
  File "/home/me/train.py", line 33 in load_batch
  File "/home/me/train.py", line 60 in <module>
`, "7f1c2e7fc640[] wait /usr/lib/python3.11/threading.py:324 < run /usr/lib/python3.11/threading.py:982\n" +
			"7f1c3b0d6740[] load_batch /home/me/train.py:33 < <module> /home/me/train.py:60"},
		{
			"names of Python 3.14", "Thread 0x00007f1c2e7fc640 [Thread-1 (f)] (most recent call first):\n" +
				"  File \"a.py\", line 1 in f\n", "7f1c2e7fc640[Thread-1 (f)] f a.py:1",
		},
		{
			"a cell", "Current thread 0x1 (most recent call first):\n  File \"Cell In[7]\", line 3 in main_fun\n",
			"1[] main_fun Cell In[7]:3",
		},
		{
			"no frames", "Thread 0x2 (most recent call first):\n  <no Python frame>\n\nThread 0x3 (most recent call first):\n",
			"2[]\n3[]",
		},
		{
			"garbage collection", "Thread 0x2 (most recent call first):\n  Garbage-collecting\n  File \"a.py\", line 1 in f\n",
			"2[] Garbage-collecting :0 < f a.py:1",
		},
		{
			"more than 100 frames", "Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n  ...\n",
			"2[] f a.py:1 …",
		},
		{
			"unknown lines", "Thread 0x2 (most recent call first):\n  File ???, line ??? in ???\n  File \"b.py\", line 2 in g\n",
			"2[] ??? :0 < g b.py:2",
		},
		{
			"characters that are not ASCII", "Thread 0x2 (most recent call first):\n" +
				"  File \"/home/m\\xfcller/\\u4e2d\\U0001f600.py\", line 1 in fl\\xe4che\n", "2[] fläche /home/müller/中😀.py:1",
		},
		{
			"control characters", "Thread 0x2 (most recent call first):\n  File \"a\\x1b[2J\\x0ab\", line 1 in f\\x9b\n",
			"2[] f\ufffd a\ufffd[2J b:1",
		},
		{
			"quotes and keywords in a path", "Thread 0x2 (most recent call first):\n  File \"a\", line 5 in b\", line 7 in c\n",
			"2[] c a\", line 5 in b:7",
		},
		{
			"a backslash that begins no character", "Thread 0x2 (most recent call first):\n" +
				"  File \"a\\xzz\\u12\\q\\U00110000\", line 1 in f\n", `2[] f a\xzz\u12\q\U00110000:1`,
		},
		{
			"twice: the last one counts", "Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n\n" +
				"Current thread 0x1 (most recent call first):\n  File \"a.py\", line 9 in g\n" +
				"Thread 0x2 (most recent call first):\n  File \"a.py\", line 2 in f\n", "2[] f a.py:2\n1[] g a.py:9",
		},
		{"too many threads", "Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n\n...\n", "2[] f a.py:1"},
		{
			"what follows on the list of threads", "Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n\n" +
				"Current thread's C stack trace (most recent call first):\n  Binary file \"python\", at f+0x1 [0x2]\n" +
				"  File \"b.py\", line 1 in g\n", "2[] f a.py:1",
		},
		{
			"cut in a line", "Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n  File \"a.py\", li",
			"2[] f a.py:1",
		},
		{
			"hostile numbers", "Thread 0x0 (most recent call first):\n  File \"a.py\", line 1 in f\n" +
				"Thread 0xfffffffffffffffffff (most recent call first):\nThread 0x2 (most recent call first):\n" +
				"  File \"a.py\", line 99999999999 in f\n", "2[] f a.py:0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			threads, more := parseFaulthandler(tt.text)
			if got := shown(threads); got != tt.want || more != (tt.name == "too many threads") {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestTidy: the main thread is first, frames that start the program are removed, limits are kept.
func TestTidy(t *testing.T) {
	t.Parallel()
	own := &clusterpb.Frame{Function: "run", File: "/run/x/python-0ab1/tfcluster/runner.py"}
	frame := &clusterpb.Frame{Function: "f", File: "a.py"}
	deep := &clusterpb.ThreadStack{Id: 1}
	for range maxFrames + 7 {
		deep.Frames = append(deep.Frames, frame)
	}
	frozen := &clusterpb.Frame{Function: "_run_code", File: "<frozen runpy>"}
	kept, leftOut := tidy([]*clusterpb.ThreadStack{
		deep, {Id: 2, Main: true, Frames: []*clusterpb.Frame{own, frame, own, own, frozen}, FramesLeftOut: 1}, {
			Id: 3, Frames: []*clusterpb.Frame{own},
		},
	})
	if len(kept) != 3 || leftOut != 0 || kept[0].GetId() != 2 || kept[1].GetId() != 1 {
		t.Fatalf("kept %v, left out %d", kept, leftOut)
	}
	if len(kept[0].GetFrames()) != 2 || kept[0].GetFramesLeftOut() != 0 || len(kept[1].GetFrames()) != maxFrames ||
		kept[1].GetFramesLeftOut() != 7 || len(kept[2].GetFrames()) != 0 {
		t.Errorf("frames: %v", kept)
	}
	if kept, leftOut = tidy(make([]*clusterpb.ThreadStack, 0)); len(kept) != 0 || leftOut != 0 {
		t.Error("nothing becomes something")
	}
	many := make([]*clusterpb.ThreadStack, maxThreads+3)
	for i := range many {
		many[i] = &clusterpb.ThreadStack{Id: uint64(i + 1), Main: i == maxThreads}
	}
	if kept, leftOut = tidy(many); len(kept) != maxThreads || leftOut != 3 || !kept[0].GetMain() {
		t.Errorf("%d kept, %d left out, the first is main: %v", len(kept), leftOut, kept[0].GetMain())
	}
	large := &clusterpb.Snapshot{}
	for range maxThreads {
		large.Threads = append(large.Threads, &clusterpb.ThreadStack{Name: strings.Repeat("x", maxSize/16)})
	}
	if fit(large); len(large.GetThreads()) != 16/2 || large.GetThreadsLeftOut() != maxThreads-8 {
		t.Errorf("%d threads, %d left out", len(large.GetThreads()), large.GetThreadsLeftOut())
	}
}

func FuzzParseFaulthandler(f *testing.F) {
	f.Add("Thread 0x2 [a] (most recent call first):\n  File \"a\\xff.py\", line 1 in f\n  ...\n\n" +
		"Current thread 0x3 (most recent call first):\n")
	f.Add("Thread 0x2 (most recent call first):\n  Garbage-collecting\n  File ???, line ??? in ???\n")
	f.Fuzz(func(t *testing.T, text string) {
		seen := map[uint64]bool{}
		threads, _ := parseFaulthandler(text)
		for _, s := range threads {
			if s.GetId() == 0 || seen[s.GetId()] {
				t.Errorf("thread %d twice, or without a number", s.GetId())
			}
			seen[s.GetId()] = true
			for _, frame := range s.GetFrames() {
				if !utf8.ValidString(frame.GetFile()) || !utf8.ValidString(frame.GetFunction()) ||
					len(frame.GetFile()) > maxFile+3 || frame.GetLine() < 0 {
					t.Errorf("frame %v", frame)
				}
			}
		}
	})
}
