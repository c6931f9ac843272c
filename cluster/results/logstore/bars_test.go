package logstore

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/termtext"
)

// TestQueriesOfBars: of a progress bar only the frame is read that nothing has overwritten, also
// where segments end within the bar.
func TestQueriesOfBars(t *testing.T) {
	t.Parallel()
	var lines []*clusterpb.Line
	add := func(stream clusterpb.Line_Stream, text string, carriage bool) {
		lines = append(lines, &clusterpb.Line{UnixNano: int64(len(lines)), Stream: stream, Text: text, Carriage: carriage})
	}
	for i := range 20 {
		for step := range 5 {
			add(clusterpb.Line_STDOUT, fmt.Sprintf("epoch %d: \x1b[1m%d\x1b[0m/5", i, step), true)
			if step == 3 && i == 7 {
				add(clusterpb.Line_STDERR, "a warning", false)
			}
		}
		add(clusterpb.Line_STDOUT, fmt.Sprintf("epoch %d: \x1b[1m5\x1b[0m/5", i), false)
	}
	add(clusterpb.Line_STDOUT, "last 1/5", true)
	add(clusterpb.Line_STDOUT, "last 2/5", true)
	add(clusterpb.Line_STDERR, "behind it", false)
	for _, segment := range []int64{1, 100, 1 << 20} {
		s := NewStore(t.TempDir(), Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: segment}, nil)
		for i, l := range lines {
			s.Append(&clusterpb.LogBatch{
				Run: 1, Task: "worker:0", Attempt: 1, First: uint64(i), Lines: []*clusterpb.Line{proto.CloneOf(l)},
			})
		}
		for _, tt := range []struct {
			q    Query
			want string
		}{
			{Query{Last: 4}, "epoch 18: 5/5|epoch 19: 5/5|last 2/5|behind it"},
			{Query{Grep: regexp.MustCompile(`^epoch 1?7: \d`)}, "epoch 7: 5/5|epoch 17: 5/5"},
			{Query{Grep: regexp.MustCompile(`warn|4/5`)}, "a warning"},
			{Query{Until: Position{"worker:0": 9}}, "epoch 0: 5/5|epoch 1: 2/5"},
		} {
			tt.q.Run = 1
			got, _, err := s.Read(tt.q)
			var texts []string
			for _, l := range got {
				texts = append(texts, termtext.Plain(l.GetText()))
			}
			if text := strings.Join(texts, "|"); err != nil || text != tt.want {
				t.Errorf("segments of %d bytes, %+v: %q, not %q: %v", segment, tt.q, text, tt.want, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
