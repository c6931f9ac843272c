package logstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// out returns a line of standard output; bar, a frame of a progress bar.
func out(task, text string) *clusterpb.Line { return &clusterpb.Line{Task: task, Text: text} }

func bar(task, text string) *clusterpb.Line {
	return &clusterpb.Line{Task: task, Text: text, Carriage: true}
}

func failing(task, text string) *clusterpb.Line {
	return &clusterpb.Line{Task: task, Text: text, Stream: clusterpb.Line_STDERR}
}

func numbered(from, n int) []*clusterpb.Line {
	var lines []*clusterpb.Line
	for i := range n {
		lines = append(lines, out("worker:0", fmt.Sprint("line ", from+i)))
	}
	return lines
}

// sketch returns a short form of what a cell shows.
func sketch(l *clusterpb.Lines) string {
	if l == nil {
		return "-"
	}
	var b strings.Builder
	part := func(lines []*clusterpb.Line) {
		for i, l := range lines {
			if len(lines) > 6 && i >= 2 && i < len(lines)-1 {
				if i == 2 {
					b.WriteString("… ")
				}
				continue
			}
			fmt.Fprintf(&b, "[%s] %s", l.GetTask(), l.GetText())
			if l.GetLeftOut() > 0 {
				fmt.Fprintf(&b, "+%d", l.GetLeftOut())
			}
			if l.GetCarriage() {
				b.WriteString("\\r")
			}
			b.WriteByte(' ')
		}
	}
	part(l.GetHead())
	if l.GetSkipped() > 0 {
		fmt.Fprintf(&b, "(%d) ", l.GetSkipped())
	}
	part(l.GetTail())
	return strings.TrimSpace(b.String())
}

// TestMerger compares what each Take returns.
func TestMerger(t *testing.T) {
	t.Parallel()
	calm := func(n int) [][]*clusterpb.Line { return make([][]*clusterpb.Line, n) }
	cut := out("worker:0", strings.Repeat("x", 100))
	piece := func(text string, more bool) *clusterpb.Line {
		l := out("worker:0", text)
		l.Continues = more
		return l
	}
	for _, tt := range []struct {
		name string
		req  *clusterpb.FollowRequest
		adds [][]*clusterpb.Line // for each Take; the last is the end of the run
		want []string
	}{
		{"nothing", nil, calm(2), []string{"-", "-"}},
		{"few lines", nil, [][]*clusterpb.Line{numbered(0, 2), nil, numbered(2, 1)}, []string{
			"[worker:0] line 0 [worker:0] line 1", "-", "[worker:0] line 2",
		}},
		{
			"a burst", nil, slices.Concat([][]*clusterpb.Line{numbered(0, 1000)}, calm(6)),
			[]string{
				"[worker:0] line 0 [worker:0] line 1 … [worker:0] line 199", "-", "-", "-", "-",
				"(600) [worker:0] line 800 [worker:0] line 801 … [worker:0] line 999", "-",
			},
		},
		{"a burst at the end", nil, [][]*clusterpb.Line{numbered(0, 450)}, []string{
			"[worker:0] line 0 [worker:0] line 1 … [worker:0] line 199 (50) [worker:0] line 250 [worker:0] line 251 … " +
				"[worker:0] line 449",
		}},
		{"one burst in two parts", nil, [][]*clusterpb.Line{numbered(0, 150), numbered(150, 300)}, []string{
			"[worker:0] line 0 [worker:0] line 1 … [worker:0] line 149",
			"[worker:0] line 150 [worker:0] line 151 … [worker:0] line 219 (30) [worker:0] line 250 [worker:0] line 251 … " +
				"[worker:0] line 449",
		}},
		{
			"bytes", &clusterpb.FollowRequest{BurstBytes: 260},
			[][]*clusterpb.Line{{cut, cut, cut, cut, cut}},
			[]string{
				"[worker:0] " + cut.Text + " [worker:0] " + cut.Text + " (1) [worker:0] " + cut.Text + " [worker:0] " + cut.Text,
			},
		},
		{"a long line", &clusterpb.FollowRequest{
			LineBytes: 10,
		}, [][]*clusterpb.Line{{cut}}, []string{"[worker:0] xxxxxxxxxx+90"}},
		{
			"a very long line, in pieces", &clusterpb.FollowRequest{LineBytes: 10},
			[][]*clusterpb.Line{
				{piece(strings.Repeat("x", 50), true), piece(strings.Repeat("y", 50), true)},
				{piece("yy", true)},
				{piece("z", false), out("worker:0", "next")},
			},
			[]string{"[worker:0] xxxxxxxxxx+90", "-", "[worker:0] +3 [worker:0] next"},
		},
		{
			"a very long line at once", &clusterpb.FollowRequest{LineBytes: 10},
			[][]*clusterpb.Line{{
				piece(strings.Repeat("x", 50), true), failing("worker:0", "beside"), piece(strings.Repeat("y", 50), false),
				out("worker:0", "next"),
			}},
			[]string{"[worker:0] xxxxxxxxxx+90 [worker:0] beside [worker:0] next"},
		},
		{"NULs", &clusterpb.FollowRequest{
			LineBytes: 12,
		}, [][]*clusterpb.Line{{out("worker:0", "\x00\x00\x00")}}, []string{"[worker:0] \x00\x00+1"}},
		{"alike", nil, [][]*clusterpb.Line{{
			out("worker:0", "a"), out("worker:1", "a"), out("worker:1", "b"), out("worker:2", "a"), out("worker:2", "b"),
		}}, []string{"[worker:0-2 ×3] a [worker:1] b [worker:2] b"}},
		{
			"identical in the part shown", &clusterpb.FollowRequest{LineBytes: 1},
			[][]*clusterpb.Line{{out("worker:0", "ab"), out("worker:1", "ac"), out("worker:2", "ad")}},
			[]string{"[worker:0] a+1 [worker:1] a+1 [worker:2] a+1"},
		},
		{"bars", nil, [][]*clusterpb.Line{{
			bar("worker:0", "1/3"), bar("worker:1", "1/3"), bar("worker:0", "2/3"), out("worker:0", "3/3"),
		}}, []string{`[worker:0] 3/3`}},
		{
			"a bar stays behind the lines of others", nil,
			[][]*clusterpb.Line{
				{out("worker:0", "Epoch 1"), bar("worker:0", "1/3"), out("worker:1", "3/3"), bar("worker:1",
					"1/9"), failing("worker:0", "a warning")}, {bar("worker:0", "2/3")}, {out("worker:0", "3/3")},
			},
			[]string{
				`[worker:0] Epoch 1 [worker:1] 3/3 [worker:0] a warning [worker:0] 1/3\r`, `[worker:0] 2/3\r`, "[worker:0] 3/3",
			},
		},
		{"the bar of the task that is shown", &clusterpb.FollowRequest{
			Show: "worker:1",
		}, [][]*clusterpb.Line{{bar("worker:0", "1/3"), bar("worker:1", "2/3")}}, []string{`[worker:1] 2/3\r`}},
		{
			"frames are no burst", &clusterpb.FollowRequest{Burst: 3},
			[][]*clusterpb.Line{slices.Concat(slices.Repeat([]*clusterpb.Line{bar("worker:0", "1/3")}, 100), numbered(0, 2))},
			[]string{"[worker:0] line 0 [worker:0] line 1"},
		},
		{"one task and errors of others", &clusterpb.FollowRequest{Show: "worker:1"}, [][]*clusterpb.Line{{
			out("worker:0", "ValueError: no"), failing("worker:0", "ValueError: bad batch"), failing("worker:0", "all is well"),
			out("worker:1", "here"),
		}}, []string{"[worker:0] ValueError: bad batch [worker:1] here"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := NewMerger(tt.req, "worker:0")
			for i, lines := range tt.adds {
				for _, l := range lines {
					m.Add([]*clusterpb.Line{proto.CloneOf(l)})
				}
				if got := sketch(m.Take(i == len(tt.adds)-1)); got != tt.want[i] {
					t.Errorf("Take %d returns\n%q, want\n%q", i, got, tt.want[i])
				}
			}
		})
	}
}

// TestMergerIsBounded: a cell gets a limited amount for any input, and every line is either
// shown or counted.
func TestMergerIsBounded(t *testing.T) {
	t.Parallel()
	const kb = 1 << 10
	for _, tt := range []struct {
		name    string
		n       int
		perTick func(i int) int // lines in the i-th tenth of a second
		text    string
		most    int64
	}{
		{"a flood for a minute", 1_000_000, func(int) int { return 1666 }, "line 123456 of so many", 200 * kb},
		{"a stream for ten minutes", 1_000_000, func(int) int { return 166 }, "line 123456 of so many", 500 * kb},
		{"a flood with pauses", 1_000_000, func(i int) int {
			return []int{5000, 3000, 0, 0, 0, 4000}[i%6]
		}, "line 123456 of so many", 500 * kb},
		{"long lines", 100_000, func(int) int { return 200 }, strings.Repeat("long ", 300), 800 * kb},
		{"long lines of NULs", 100_000, func(int) int { return 1000 }, strings.Repeat("\x00", 5000), 800 * kb},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := NewMerger(&clusterpb.FollowRequest{Burst: 200, BurstBytes: 256 * kb, LineBytes: 4 * kb}, "worker:0")
			if testing.Short() { // the race detector takes 0.1 ms for a line, and more for a long one
				tt.n /= 10
			}
			line := out("worker:12", tt.text)
			var bytes, shown int64
			for i, left := 0, tt.n; left > 0; i++ {
				some := min(left, tt.perTick(i))
				left -= some
				m.Add(slices.Repeat([]*clusterpb.Line{line}, some))
				u := m.Take(left == 0)
				for _, l := range slices.Concat(u.GetHead(), u.GetTail()) {
					bytes += lineSize(l)
					shown++
				}
				shown += u.GetSkipped()
			}
			if bytes > tt.most || shown != int64(tt.n) {
				t.Errorf("%d bytes are shown, want at most %d; %d of %d lines are shown or counted", bytes, tt.most, shown, tt.n)
			}
		})
	}
}

// TestEnds: the first and last lines of many tasks are the same as those of one merged list.
func TestEnds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := bounds{lines: 1 + random.IntN(20)}
		if random.IntN(2) == 0 {
			b.bytes = int64(20 + random.IntN(400))
		}
		s := NewStore(t.TempDir(), Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: 300}, nil)
		whole := newEnds(b)
		n := random.IntN(120)
		firsts := map[string]uint64{}
		for i := range n {
			l := &clusterpb.Line{Task: fmt.Sprint("worker:", random.IntN(4)), Text: fmt.Sprint("line ", i), UnixNano: int64(i)}
			whole.add(l)
			s.Append(&clusterpb.LogBatch{
				Run: 1, Task: l.GetTask(), Attempt: 1, First: firsts[l.GetTask()], Lines: []*clusterpb.Line{proto.CloneOf(l)},
			})
			firsts[l.GetTask()]++
		}
		got, err := s.ends(Query{Run: 1}, b, 0, func(*clusterpb.Line) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if a, b := sketch(got.shown()), sketch(whole.shown()); a != b {
			t.Errorf("%d lines: got\n%s, want\n%s", n, a, b)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
