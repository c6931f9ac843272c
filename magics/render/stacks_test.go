package render

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestStacksHTML: frames of libraries are faint, those of the program are not, and text of tasks is
// escaped.
func TestStacksHTML(t *testing.T) {
	t.Parallel()
	const hostile = `<script>alert(1)</script>`
	s := &clusterpb.Snapshot{
		Task: "worker:0", Error: hostile, Native: hostile, NativeError: hostile,
		Threads: []*clusterpb.ThreadStack{
			{Main: true, Name: hostile, State: hostile, WaitChannel: hostile, Frames: []*clusterpb.Frame{
				{Function: hostile, File: "/home/me/" + hostile + ".py", Line: 7, Code: hostile},
				{Function: "fit", File: "/usr/lib/python3.12/site-packages/keras/trainer.py", Line: 8},
			}},
			{Name: hostile, NativeId: 9, State: "D", WaitChannel: hostile},
		},
		Children: []*clusterpb.ProcessState{{Command: hostile, State: hostile}},
	}
	b := StacksView(1, []*clusterpb.Snapshot{s}, []*clusterpb.MissingSnapshot{{Task: hostile, Reason: hostile}}, false)
	html := b.HTML()
	if strings.Contains(html, "<script>") {
		t.Errorf("text of a task is not escaped: %s", html)
	}
	for text, want := range map[string]string{
		"keras/trainer.py:8": `<span style="opacity:.65">    keras/trainer.py:8`, "script&gt;.py:7": "<span>  &gt; script",
	} {
		if !strings.Contains(html, text) || !strings.Contains(html, want) {
			t.Errorf("no %q with %q in %s", text, want, html)
		}
	}
}

// TestFrameRows: a run of library frames is shortened to its first one, the program's frames are
// all shown.
func TestFrameRows(t *testing.T) {
	t.Parallel()
	frame := func(file string) *clusterpb.Frame { return &clusterpb.Frame{Function: "f", File: file, Line: 1} }
	program, keras, threading := frame("/home/me/train.py"), frame("/x/site-packages/keras/a.py"),
		frame("/usr/lib/python3.12/threading.py")
	own := frame("/run/python-0123abcd/tfcluster/collective.py")
	for _, tt := range []struct {
		name   string
		frames []*clusterpb.Frame
		all    bool
		want   string
	}{
		{"nothing", nil, false, ""},
		{
			"the program's", []*clusterpb.Frame{program, program, program, program, program}, false, "train.py:1 train.py:1 " +
				"train.py:1 train.py:1 train.py:1",
		},
		{
			"few of libraries", []*clusterpb.Frame{keras, threading, own, program}, false, "keras/a.py:1 threading.py:1 " +
				"collective.py:1 train.py:1",
		},
		{
			"many", []*clusterpb.Frame{threading, keras, keras, own, program, keras}, false, "threading.py:1 … 3 frames in " +
				"keras, tfcluster train.py:1 keras/a.py:1",
		},
		{
			"all", []*clusterpb.Frame{keras, keras, keras, keras}, true, strings.TrimSpace(
				strings.Repeat("/x/site-packages/keras/a.py:1 ", 4)),
		},
		{
			"garbage collection", []*clusterpb.Frame{{Function: clusterpb.CollectingGarbage}, program}, false, "(Python " +
				"collects garbage) train.py:1",
		},
		{
			"a cell",
			[]*clusterpb.Frame{frame("Cell In[3]"), frame("<string>"), frame("<frozen importlib._bootstrap>")},
			false, "Cell In[3]:1 <string>:1 <frozen importlib._bootstrap>:1",
		},
	} {
		var places []string
		for _, r := range frameRows(tt.frames, tt.all) {
			places = append(places, r.place)
		}
		if got := strings.Join(places, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
