package tasklog

import (
	"bytes"
	"strings"

	"github.com/tfcluster/tfcluster/internal/excerpt"
	"github.com/tfcluster/tfcluster/internal/termtext"
)

// maxLine is the length in bytes at which a line is split.
const maxLine = 1 << 20

// Frame is a line as a terminal shows it, with its colours.
type Frame struct {
	Text      string
	Carriage  bool // ended with \r: a progress bar's frame
	Continues bool // split at maxLine: the next frame continues it
}

// Splitter splits a byte stream into lines at \n, \r (a progress bar) and \r\n. Lines longer than maxLine are split.
type Splitter struct {
	rest     []byte
	Carriage bool // the last byte was \r, and \n may follow
	told     bool // Pending has returned the line of a \r: a \n that follows is dropped
}

// Write adds data and returns the lines it completes.
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

// Pending returns the line after which only \r has come, without waiting for \n; ok is false if there is none.
func (s *Splitter) Pending() (line Frame, ok bool) {
	if !s.Carriage {
		return Frame{}, false
	}
	s.Carriage, s.told = false, true
	return s.take(true), true
}

// Close returns the data after the last line end.
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
