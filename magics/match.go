package magics

import (
	"strings"

	"github.com/tfcluster/tfcluster/magics/command"
)

// Match is what becomes of a cell.
type Match int

// What becomes of a cell.
const (
	Pass  Match = iota // Python's
	Queue              // ours, in its turn
	Now                // ours, at once: every line of it says --now
)

// Match says whether a cell is made of magics alone. It asks nobody and is quick:
// the kernel calls it for every cell.
func (s *Session) Match(code string) Match {
	if !strings.Contains(code, "%"+command.MagicName) {
		return Pass
	}
	cell, ok := command.ReadCell(code)
	if !ok {
		return Pass
	}
	for _, line := range cell.Lines {
		if !s.verbs.Table.IsNow(line) {
			return Queue
		}
	}
	return Now
}

// NowHint is whether every line of a cell might say --now instead of waiting for its
// turn, for the kernel to say so.
func (s *Session) NowHint(code string) bool { return s.verbs.Table.NowHint(code) }
