package logstore

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Shortener cuts lines that are too long for a cell and counts the bytes left out. A line that
// arrives in several pieces, because it exceeds what an agent sends at once, is treated as one
// line. The zero value cuts nothing. One Shortener handles the lines of many tasks; it is not
// safe for concurrent use.
type Shortener struct {
	Limit int // most bytes of a line in JSON; 0: no limit
	open  map[openKey]*openLine
}

type openKey struct {
	task   string
	stream clusterpb.Line_Stream
}

// openLine is a line whose remaining pieces are still to come.
type openLine struct {
	shown *clusterpb.Line // its first piece; nil once the caller may have sent it
	more  int64           // bytes left out since
}

// Line returns what to show of a line: the line itself, a shortened copy, or nil if the line
// continues one that was cut before.
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

// rest returns the line that counts the bytes left out at the end of a line, or nil if the
// line's first piece could still count them.
func (o *openLine) rest(last *clusterpb.Line) *clusterpb.Line {
	if o.shown != nil {
		o.shown.LeftOut += o.more
		return nil
	}
	return &clusterpb.Line{
		Task: last.GetTask(), Stream: last.GetStream(), UnixNano: last.GetUnixNano(), Seq: last.GetSeq(), LeftOut: o.more,
	}
}

// Sent reports that the caller may have sent the lines returned so far: they are not modified
// any more. Bytes left out of lines that continue are then counted in a separate line.
func (s *Shortener) Sent() {
	for _, o := range s.open {
		if o.shown != nil {
			o.shown.LeftOut += o.more
			o.shown, o.more = nil, 0
		}
	}
}

// fit returns the length of the longest prefix of text, in whole characters, that takes at most
// limit bytes in JSON.
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

// jsonSize returns the size of a text in JSON.
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
	}
	return utf8.RuneLen(r)
}
