package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// A segment is a file of consecutive lines of a task, named by the number of the first. A
// row of it is
//
//	2026-11-21T04:05:06.789012345Z E text
//
// where E is standard error, O standard output, and a small letter a frame that ended in a
// carriage return. A row with a G is no line. It says that lines are missing before the
// next row: how many, when the first of them was written, and why:
//
//	2026-11-21T04:05:11.300000000Z G 123 2026-11-21T04:05:06.789012345Z no space left on device
//
// A row without an end is the rest of a write that failed: its line is missing.
type segment struct {
	path  string
	first uint64 // the number of its first line
	bytes int64
	lines uint64
	last  time.Time
}

const (
	stampLayout = "2006-01-02T15:04:05.000000000Z"
	headBytes   = len(stampLayout) + 3
	gapMark     = 'G'
	// pieceBytes is from where on a row is taken for a piece of a longer line: agents cut
	// those at 1 MiB, less where that would be within a character.
	pieceBytes = 1<<20 - utf8.UTFMax + 1
)

func openSegment(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// appendLine appends a line's row.
func appendLine(row []byte, l *clusterpb.Line) []byte {
	mark := byte('O')
	if l.GetStream() == clusterpb.Line_STDERR {
		mark = 'E'
	}
	if l.GetCarriage() {
		mark |= 0x20
	}
	row = time.Unix(0, l.GetUnixNano()).UTC().AppendFormat(row, stampLayout)
	row = append(row, ' ', mark, ' ')
	row = append(row, strings.ReplaceAll(l.GetText(), "\n", " ")...)
	return append(row, '\n')
}

// parseStored reads one row of a segment; false when it is no line.
func parseStored(row []byte, task string) (*clusterpb.Line, bool) {
	at, mark, text, ok := parseRow(row)
	if !ok {
		return nil, false
	}
	l := &clusterpb.Line{
		UnixNano: at.UnixNano(), Text: strings.ToValidUTF8(string(text), string(utf8.RuneError)), Task: task, Continues: len(text) >= pieceBytes,
	}
	switch mark {
	case 'O', 'o':
		l.Carriage = mark == 'o'
	case 'E', 'e':
		l.Stream, l.Carriage = clusterpb.Line_STDERR, mark == 'e'
	default:
		return nil, false
	}
	return l, true
}

func parseRow(row []byte) (at time.Time, mark byte, text []byte, ok bool) {
	if len(row) < headBytes || row[len(stampLayout)] != ' ' || row[headBytes-1] != ' ' {
		return time.Time{}, 0, nil, false
	}
	at, err := time.Parse(stampLayout, string(row[:len(stampLayout)]))
	return at, row[headBytes-2], row[headBytes:], err == nil
}

// Gap is lines that are not there.
type Gap struct {
	Task     string
	Lines    uint64
	From, To time.Time // when the first and the last were written; zero: nobody knows
	Why      string
	Before   int // among the lines read it stands before this one
}

// String is "worker:1: 123 lines were not kept: no space left on device, 15:04:05 to 15:04:10".
func (g Gap) String() string {
	if g.To.IsZero() {
		return fmt.Sprintf("%s: the oldest %d lines are gone (%s)", g.Task, g.Lines, g.Why)
	}
	from, to := g.From.Local(), g.To.Local()
	layout := time.DateTime
	if from.YearDay() == to.YearDay() && to.Sub(from) < 24*time.Hour {
		layout = time.TimeOnly
	}
	when := from.Format(layout)
	if until := to.Format(layout); until != when {
		when += " to " + until
	}
	if g.Lines == 1 {
		return fmt.Sprintf("%s: 1 line was not kept: %s, %s", g.Task, g.Why, when)
	}
	return fmt.Sprintf("%s: %d lines were not kept: %s, %s", g.Task, g.Lines, g.Why, when)
}

// appendGap appends a gap's row.
func appendGap(row []byte, g *Gap) []byte {
	row = g.To.UTC().AppendFormat(row, stampLayout)
	row = append(row, ' ', gapMark, ' ')
	row = strconv.AppendUint(row, g.Lines, 10)
	row = append(row, ' ')
	row = g.From.UTC().AppendFormat(row, stampLayout)
	row = append(row, ' ')
	row = append(row, strings.ReplaceAll(g.Why, "\n", " ")...)
	return append(row, '\n')
}

// parseGap reads one row of a segment; false when it is no gap.
func parseGap(row []byte, task string) (*Gap, bool) {
	to, mark, text, ok := parseRow(row)
	if !ok || mark != gapMark {
		return nil, false
	}
	count, rest, _ := strings.Cut(string(text), " ")
	from, why, _ := strings.Cut(rest, " ")
	lines, err := strconv.ParseUint(count, 10, 64)
	at, terr := time.Parse(stampLayout, from)
	if err != nil || terr != nil {
		return nil, false
	}
	return &Gap{Task: task, Lines: lines, From: at, To: to, Why: strings.ToValidUTF8(why, string(utf8.RuneError))}, true
}

// isGap is whether a row is a gap's; one that cannot be read counts as a line.
func isGap(row []byte) bool {
	_, ok := parseGap(row, "")
	return ok
}

// countRows is how many lines the whole rows of a segment hold, and the bytes of those rows.
func countRows(b []byte) (lines uint64, whole int64) {
	for {
		i := bytes.IndexByte(b[whole:], '\n')
		if i < 0 {
			return lines, whole
		}
		if !isGap(b[whole : whole+int64(i)]) {
			lines++
		}
		whole += int64(i) + 1
	}
}

// reason is an error of the file system without the names in it.
func reason(err error) string {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
