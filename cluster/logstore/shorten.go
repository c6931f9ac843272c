package logstore

import (
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Shortener cuts lines that are too long for a cell, and says how much it left out. A line
// that comes in pieces, since it is longer than an agent sends at once, is one line. The
// zero value cuts nothing. Its lines may come of many tasks; it has one user.
type Shortener struct {
	Limit int // bytes of a line, as JSON writes them; 0: any number
	open  map[openKey]*openLine
}

type openKey struct {
	task   string
	stream clusterpb.Line_Stream
}

// openLine is a line of which more pieces come.
type openLine struct {
	shown *clusterpb.Line // its start; nil once that may have been sent
	more  int64           // bytes left out since
}

// Line returns what is shown of a line: the line itself, a copy that is cut, or nil where
// it is part of one before.
func (s *Shortener) Line(l *clusterpb.Line) *clusterpb.Line {
	if s.Limit <= 0 {
		return l
	}
	key := openKey{l.GetTask(), l.GetStream()}
	if o := s.open[key]; o != nil {
		o.more += int64(len(l.GetText()))
		if l.GetContinues() {
			return nil
		}
		delete(s.open, key)
		return o.rest(l)
	}
	end := fit(l.GetText(), s.Limit)
	if end == len(l.GetText()) && !l.GetContinues() {
		return l
	}
	cut := proto.CloneOf(l)
	cut.Text, cut.LeftOut, cut.Continues = l.GetText()[:end], int64(len(l.GetText())-end), false
	if l.GetContinues() {
		if s.open == nil {
			s.open = map[openKey]*openLine{}
		}
		s.open[key] = &openLine{shown: cut}
	}
	return cut
}

// rest returns what is to be shown when the line ends: nil if its start can still show it.
func (o *openLine) rest(last *clusterpb.Line) *clusterpb.Line {
	if o.shown != nil {
		o.shown.LeftOut += o.more
		return nil
	}
	return &clusterpb.Line{Task: last.GetTask(), Stream: last.GetStream(), UnixNano: last.GetUnixNano(), Seq: last.GetSeq(), LeftOut: o.more}
}

// Sent says that the lines returned may be with somebody else now: they do not change any
// more. What is left out from now on of those that go on has a line of its own.
func (s *Shortener) Sent() {
	for _, o := range s.open {
		if o.shown != nil {
			o.shown.LeftOut += o.more
			o.shown, o.more = nil, 0
		}
	}
}

// fit is how many bytes of a text, whole characters, JSON writes in limit bytes.
func fit(text string, limit int) int {
	if 6*len(text) <= limit {
		return len(text)
	}
	size := 0
	for i, r := range text {
		if size += runeSize(r); size > limit {
			return i
		}
	}
	return len(text)
}

// jsonSize is the bytes in which JSON writes a text.
func jsonSize(text string) int {
	size := 0
	for _, r := range text {
		size += runeSize(r)
	}
	return size
}

func runeSize(r rune) int {
	switch {
	case r == '\n' || r == '\t' || r == '\r' || r == '"' || r == '\\':
		return 2
	case r < ' ' || r == '\u2028' || r == '\u2029':
		return 6 // \u0000
	case r < 0x80:
		return 1
	case r < 0x800:
		return 2
	case r < 0x10000:
		return 3
	}
	return 4
}
