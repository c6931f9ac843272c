package logstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// pageTasks are the tasks of the tests of paging; the names of two are the same but for the index.
var pageTasks = []string{"chief", "worker:0", "worker:10"}

// name identifies a line.
func name(l *clusterpb.Line) string {
	return fmt.Sprint(l.GetTask(), " ", l.GetSeq(), " ", l.GetText())
}

// writePages writes 200 lines of each task, a third of them frames of progress bars of both streams. Some were written
// at the same moment, and a clock is set back. worker:0's lines 80 to 99 are lost.
func writePages(t *testing.T, segment int64) *written {
	t.Helper()
	w := writeTo(t, t.TempDir(), Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: segment})
	rnd := rand.New(rand.NewPCG(1, uint64(segment)))
	for i := range 200 {
		for k, task := range pageTasks {
			now := int64(i/3*1000 + k)
			if k == 1 && i > 120 { // this task continues on a host whose clock is behind
				now -= 40_000
			}
			l := &clusterpb.Line{
				UnixNano: now, Text: fmt.Sprintf("line %d", i), Stream: clusterpb.Line_Stream(rnd.IntN(2)),
				Carriage: rnd.IntN(3) == 0,
			}
			w.disk.room.Store(plenty)
			if k == 1 && i >= 80 && i < 100 {
				w.disk.room.Store(0)
			} else if k == 1 && i == 100 {
				w.retry()
			}
			w.Append(&clusterpb.LogBatch{Run: 1, Task: task, Attempt: 1, First: uint64(i), Lines: []*clusterpb.Line{l}})
		}
	}
	return w
}

// page returns the lines and gaps of a request, as names, and lowers before to the lines returned.
func (w *written) page(req *clusterpb.LogsRequest) (names []string) {
	w.t.Helper()
	q, err := ParseQuery(req)
	if err != nil {
		w.t.Fatal(err)
	}
	lines, gaps, err := w.Read(q)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range gaps {
		names = append(names, g.Task+" "+g.String())
	}
	for _, l := range lines {
		names = append(names, name(l))
		if first, seen := req.Before[l.GetTask()]; req.Before != nil && (!seen || l.GetSeq() < first) {
			req.Before[l.GetTask()] = l.GetSeq()
		}
	}
	return names
}

// pages returns all pages of a request, from the last one backwards.
func (w *written) pages(req *clusterpb.LogsRequest) (all []string) {
	req.Before = map[string]uint64{}
	for range 1000 {
		names := w.page(req)
		all = append(all, names...)
		if !slices.ContainsFunc(names, func(s string) bool { return !strings.HasSuffix(s, lostSuffix) }) {
			break
		}
	}
	return all
}

// lostSuffix ends the name of the gap.
const lostSuffix = "00:00:00"

// TestPages: pages from the last lines backwards have together what one query returns, each line once. A gap right
// before the first page is in the next one, too.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, segment := range []int64{1, 300, 1 << 20} {
		w := writePages(t, segment)
		for _, grep := range []string{"", "[05]$", "line 7$"} {
			for _, task := range []string{"", "worker", "chief"} {
				req := &clusterpb.LogsRequest{Run: 1, Task: task, Grep: grep}
				want := w.page(req)
				slices.Sort(want)
				for _, last := range []int32{1, 2, 7, 100, 1000} {
					req.Last = last
					got := w.pages(req)
					slices.Sort(got)
					if i := slices.IndexFunc(got, func(s string) bool { return strings.HasSuffix(s, lostSuffix) }); i >= 0 &&
						len(got) > i+1 && got[i] == got[i+1] {
						got = slices.Delete(got, i, i+1)
					}
					if !slices.Equal(got, want) {
						t.Errorf("segments of %d bytes, %s /%s/ in pages of %d lines: %d, not %d\n%v", segment, task, grep, last,
							len(got), len(want), difference(got, want))
					}
				}
				req.Last, req.Before = 0, nil
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// difference returns the lines of one of two sorted lists only.
func difference(got, want []string) (of []string) {
	for _, s := range got {
		if i, found := slices.BinarySearch(want, s); found {
			want = slices.Delete(slices.Clone(want), i, i+1)
		} else {
			of = append(of, "+"+s)
		}
	}
	for _, s := range want {
		of = append(of, "-"+s)
	}
	return of
}

// TestPageOfNewLines: lines that arrive between two pages are not in the second one, and a task that is not named is
// not limited.
func TestPageOfNewLines(t *testing.T) {
	t.Parallel()
	w := writeTo(t, t.TempDir(), DefaultQuota())
	w.lines(10, 1)
	req := &clusterpb.LogsRequest{Run: 1, Last: 4, Before: map[string]uint64{"chief": 3}}
	w.page(req)
	w.lines(10, 1)
	w.Append(
		&clusterpb.LogBatch{Run: 1, Task: "worker:1", Attempt: 1, Lines: []*clusterpb.Line{{Text: "new", UnixNano: 1}}})
	if got, want := w.page(req), []string{
		"worker:0 3 line 3", "worker:0 4 line 4", "worker:0 5 line 5",
	}; !slices.Equal(got[1:], want) || got[0] != "worker:0 2 line 2" {
		t.Errorf("the second page is %q", got)
	}
	if got := w.page(req); !slices.Equal(got, []string{"worker:1 0 new", "worker:0 0 line 0", "worker:0 1 line 1"}) {
		t.Errorf("the last page is %q", got)
	}
	if _, err := ParseQuery(&clusterpb.LogsRequest{Follow: true, Before: req.GetBefore()}); err == nil {
		t.Error("lines before a position are followed")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestPageReadsLittle: a page does not read the segments of other pages.
func TestPageReadsLittle(t *testing.T) {
	t.Parallel()
	w := writeTo(t, t.TempDir(), Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: 400}) // about ten lines
	w.lines(1000, 1)
	reads := 0
	read := w.read
	w.read = func(path string) ([]byte, error) { reads++; return read(path) }
	w.page(&clusterpb.LogsRequest{Run: 1, Last: 10, Before: map[string]uint64{"worker:0": 500}})
	if reads == 0 || reads > 3 {
		t.Errorf("a page of ten lines reads %d segments", reads)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
