package logstore

import (
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Bars holds back the frames of progress bars among lines that are shown as they come, so
// that only the newest frame of one task is shown, behind the other tasks' lines.
type Bars struct {
	task string
	last *clusterpb.Line // nil once a line has overwritten it or Last has returned it
}

// NewBars returns the Bars of one task: the task that was asked for, or else the chief.
func NewBars(asked, chief string) Bars {
	if _, _, one := strings.Cut(asked, ":"); one {
		return Bars{task: asked}
	}
	return Bars{task: chief}
}

// Passes returns whether a line is shown in its place, which a frame is not.
func (b *Bars) Passes(l *clusterpb.Line) bool {
	switch {
	case l.GetCarriage():
		if l.GetTask() == b.task {
			b.last = l
		}
		return false
	case b.last != nil && b.last.GetTask() == l.GetTask() && b.last.GetStream() == l.GetStream():
		b.last = nil
	}
	return true
}

// Last appends the newest frame, if it has not been returned before and no line has overwritten it.
func (b *Bars) Last(lines []*clusterpb.Line) []*clusterpb.Line {
	if b.last == nil {
		return lines
	}
	lines, b.last = append(lines, b.last), nil
	return lines
}

// behind appends it, shortened, to what a cell shows.
func (b *Bars) behind(out *clusterpb.Lines, short *Shortener) {
	for _, l := range b.Last(nil) {
		switch l = short.Line(l); {
		case l == nil:
		case len(out.GetTail()) > 0:
			out.Tail = append(out.Tail, l)
		default:
			out.Head = append(out.Head, l)
		}
	}
}
