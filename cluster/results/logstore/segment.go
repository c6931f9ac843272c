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

// A segment is a file of consecutive lines of a task, named by the number of its first line. A
// row of it is
//
//	2026-11-21T04:05:06.789012345Z E text
//
// where E is standard error, O standard output, and a lower-case letter a frame that ended in a
// carriage return. A row with G is not a line but a gap. It reports that lines are missing
// before the next row: how many, when the first of them was written, and why:
//
//	2026-11-21T04:05:11.300000000Z G 123 2026-11-21T04:05:06.789012345Z no space left on device
//
// A row without a line end was left by a write that failed: its line is missing.
type segment struct {
	path  string
	first uint64 // number of its first line
	bytes int64
	lines uint64
	last  time.Time
}

const (
	stampLayout = "2006-01-02T15:04:05.000000000Z"
	headBytes   = len(stampLayout) + 3
	gapMark     = 'G'
	// pieceBytes is the least length of a row that is a piece of a longer line: agents cut
	// lines at 1 MiB, or slightly before to keep a character whole.
	pieceBytes = 1<<20 - utf8.UTFMax + 1
)

func openSegment(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// appendLine appends the row of a line.
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

// parseStored parses a row of a segment; it returns false if the row is not a line.
func parseStored(row []byte, task string) (*clusterpb.Line, bool) {
	at, mark, text, ok := parseRow(row)
	if !ok {
		return nil, false
	}
	l := &clusterpb.Line{
		UnixNano: at.UnixNano(), Text: strings.ToValidUTF8(string(text), string(utf8.RuneError)), Task: task,
		Continues: len(text) >= pieceBytes,
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

// Gap describes lines that are missing.
type Gap struct {
	Task     string
	Lines    uint64    // 0: all of the task's, which cannot be read
	From, To time.Time // when the first and the last line were written; zero: unknown
	Why      string
	Before   int // index, among the lines read, of the line that follows the gap
}

// String returns text such as "worker:1: 123 lines were not kept: no space left on device,
// 15:04:05 to 15:04:10".
func (g Gap) String() string {
	switch {
	case g.Lines == 0:
		return fmt.Sprintf("%s: its lines cannot be read: %s", g.Task, g.Why)
	case g.To.IsZero():
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

// appendGap appends the row of a gap.
func appendGap(row []byte, g *Gap) []byte {
	from, to, why := g.From.UTC().Format(stampLayout), g.To.UTC().Format(stampLayout), strings.ReplaceAll(g.Why, "\n", " ")
	return fmt.Appendf(row, "%s %c %d %s %s\n", to, gapMark, g.Lines, from, why)
}

// parseGap parses a row of a segment; it returns false if the row is not a gap.
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

// countRows returns the number of lines in the complete rows of a segment, and the size of
// those rows. A row that cannot be parsed counts as a line.
func countRows(b []byte) (lines uint64, whole int64) {
	for {
		i := bytes.IndexByte(b[whole:], '\n')
		if i < 0 {
			return lines, whole
		}
		if _, gap := parseGap(b[whole:whole+int64(i)], ""); !gap {
			lines++
		}
		whole += int64(i) + 1
	}
}

// reason returns the text of a file system error without the file names.
func reason(err error) string {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
