package agent

import (
	"bytes"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/agent/excerpt"
)

// maxLine is where a line without an end is cut, in bytes.
const maxLine = 1 << 20

// frame is a line as a task wrote it.
type frame struct {
	text     string
	carriage bool // ended in \r: a progress bar's frame
	goesOn   bool // cut at maxLine: the next frame is the rest
}

// splitter cuts a byte stream into lines: at \n, at \r (a progress bar), with
// \r\n as one end. A line longer than maxLine comes in pieces.
type splitter struct {
	rest []byte
	cr   bool // the last byte was a \r whose meaning the next byte tells
	told bool // that \r's line was given by pending: a \n now ends nothing
}

// write takes bytes and returns the lines they complete.
func (s *splitter) write(data []byte) []frame {
	var found []frame
	for len(data) > 0 {
		if s.told {
			s.told = false
			if data[0] == '\n' {
				data = data[1:]
				continue
			}
		}
		if s.cr {
			s.cr = false
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
			piece.goesOn = true
			found = append(found, piece)
			continue
		}
		s.rest = append(s.rest, data[:end]...)
		if end == len(data) {
			break
		}
		if data[end] == '\r' {
			s.cr = true
		} else {
			found = append(found, s.take(false))
		}
		data = data[end+1:]
	}
	return found
}

// pending returns a progress bar's frame whose \r has come: the bar may stand
// still for long. ok is false where the stream stands elsewhere.
func (s *splitter) pending() (line frame, ok bool) {
	if !s.cr {
		return frame{}, false
	}
	s.cr, s.told = false, true
	return s.take(true), true
}

// close returns what stands behind the last end of line.
func (s *splitter) close() (line frame, ok bool) {
	if !s.cr && len(s.rest) == 0 {
		return frame{}, false
	}
	carriage := s.cr
	s.cr = false
	return s.take(carriage), true
}

func (s *splitter) take(carriage bool) frame {
	text := strings.ToValidUTF8(string(s.rest), "\uFFFD")
	s.rest = s.rest[:0]
	if cap(s.rest) > 1<<16 {
		s.rest = nil
	}
	return frame{text: text, carriage: carriage}
}
