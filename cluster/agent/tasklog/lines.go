package tasklog

import (
	"bytes"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/agent/excerpt"
	"github.com/tfcluster/tfcluster/cluster/termtext"
)

// maxLine is where a line without an end is cut, in bytes.
const maxLine = 1 << 20

// Frame is a line as a terminal would show it, with its colours.
type Frame struct {
	Text      string
	Carriage  bool // ended in \r: a progress bar's frame
	Continues bool // cut at maxLine: the next frame is the rest
}

// Splitter cuts a byte stream into lines: at \n, at \r (a progress bar), with
// \r\n as one end. A line longer than maxLine comes in pieces.
type Splitter struct {
	rest     []byte
	Carriage bool // the last byte was a \r whose meaning the next byte tells
	told     bool // that \r's line was given by pending: a \n now ends nothing
}

// Write takes bytes and returns the lines they complete.
func (s *Splitter) Write(data []byte) []Frame {
	var found []Frame
	for len(data) > 0 {
		if s.told {
			s.told = false
			if data[0] == '\n' {
				data = data[1:]
				continue
			}
		}
		if s.Carriage {
			s.Carriage = false
			newline := data[0] == '\n'
			found = append(found, s.take(!newline))
			if newline {
				data = data[1:]
				continue
			}
		}
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			end = len(data)
		}
		if room := maxLine - len(s.rest); end > room {
			cut := excerpt.WholeRunes(data[:room])
			s.rest = append(s.rest, data[:cut]...)
			data = data[cut:]
			piece := s.take(false)
			piece.Continues = true
			found = append(found, piece)
			continue
		}
		s.rest = append(s.rest, data[:end]...)
		if end == len(data) {
			break
		}
		if data[end] == '\r' {
			s.Carriage = true
		} else {
			found = append(found, s.take(false))
		}
		data = data[end+1:]
	}
	return found
}

// Pending returns a progress bar's frame whose \r has come: the bar may stand
// still for long. ok is false where the stream stands elsewhere.
func (s *Splitter) Pending() (line Frame, ok bool) {
	if !s.Carriage {
		return Frame{}, false
	}
	s.Carriage, s.told = false, true
	return s.take(true), true
}

// Close returns what stands behind the last end of line.
func (s *Splitter) Close() (line Frame, ok bool) {
	if !s.Carriage && len(s.rest) == 0 {
		return Frame{}, false
	}
	carriage := s.Carriage
	s.Carriage = false
	return s.take(carriage), true
}

func (s *Splitter) take(carriage bool) Frame {
	text := termtext.Line(strings.ToValidUTF8(string(s.rest), "\uFFFD"))
	s.rest = s.rest[:0]
	if cap(s.rest) > 1<<16 {
		s.rest = nil
	}
	return Frame{Text: text, Carriage: carriage}
}
