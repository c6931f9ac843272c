package render

import (
	"crypto/rand"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// View is one display that is updated in place, at most five times a second.
type View struct {
	out  Displayer
	id   string
	last time.Time
	open bool
}

const viewEvery = 200 * time.Millisecond

// NewView makes a view that shows nothing yet.
func NewView(out Displayer) *View { return &View{out: out, id: rand.Text()} }

// Show draws the bundle; unless must, not more often than viewEvery.
func (v *View) Show(must bool, draw func() Bundle) {
	if v.open && !must && time.Since(v.last) < viewEvery {
		return
	}
	data := draw().MIME()
	if v.open {
		v.out.Update(v.id, data, nil)
	} else {
		v.out.Display(v.id, data, nil)
	}
	v.open, v.last = true, time.Now()
}

// Display shows something once.
func Display(out Displayer, b Bundle) { out.Display(rand.Text(), b.MIME(), nil) }

// Table is rows under a head; plain text is aligned, HTML a table.
type Table struct {
	Head  []string
	Right []int // columns aligned right
	Rows  [][]Cell
}

// Cell is a table's cell: text, and how it is meant.
type Cell struct {
	Text string
	Tone Tone
}

// Tone is how a cell is meant.
type Tone int

// Tones: what is good, bad, still going on, or beside the point.
const (
	ToneNone Tone = iota
	ToneGood
	ToneBad
	ToneBusy
	ToneFaint
)

var toneStyles = [...]template.CSS{
	ToneGood:  "color:#2e9e4f",
	ToneBad:   "color:#e0483e;font-weight:600",
	ToneBusy:  "color:#b98300",
	ToneFaint: "opacity:.65",
}

// Style of a tone: colours readable on white and on black.
func (t Tone) Style() template.CSS { return toneStyles[t] }

// Row is cells without a tone.
func Row(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, t := range texts {
		cells[i] = Cell{Text: t}
	}
	return cells
}

// Drop removes the columns that are empty in every row.
func (t Table) Drop() Table {
	var keep []int
	for i := range t.Head {
		if slices.ContainsFunc(t.Rows, func(r []Cell) bool { return i < len(r) && r[i].Text != "" }) {
			keep = append(keep, i)
		}
	}
	out := Table{}
	for at, i := range keep {
		out.Head = append(out.Head, t.Head[i])
		if slices.Contains(t.Right, i) {
			out.Right = append(out.Right, at)
		}
	}
	for _, r := range t.Rows {
		var row []Cell
		for _, i := range keep {
			row = append(row, r[i])
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// width is how many columns of a terminal a text takes, near enough.
func width(s string) int { return utf8.RuneCountInString(s) }

// Plain is the table in aligned text.
func (t Table) Plain() string {
	widths := make([]int, len(t.Head))
	for i, h := range t.Head {
		widths[i] = width(h)
	}
	for _, r := range t.Rows {
		for i, c := range r {
			widths[i] = max(widths[i], width(c.Text))
		}
	}
	var b strings.Builder
	line := func(text func(int) string) {
		var l strings.Builder
		for i := range t.Head {
			s := text(i)
			pad := strings.Repeat(" ", max(0, widths[i]-width(s)))
			if slices.Contains(t.Right, i) {
				s = pad + s
			} else {
				s += pad
			}
			if i > 0 {
				l.WriteString("  ")
			}
			l.WriteString(s)
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	line(func(i int) string { return t.Head[i] })
	for _, r := range t.Rows {
		line(func(i int) string { return r[i].Text })
	}
	return b.String()
}

// align returns how a table's column is aligned.
func align(t Table, column int) string {
	if slices.Contains(t.Right, column) {
		return "right"
	}
	return "left"
}

// unbroken is up to how many characters a notebook shows a cell's text on one line.
const unbroken = 24

// Style is the CSS of the cell's tone and length, for the template of a table.
func (c Cell) Style() template.CSS {
	style := c.Tone.Style()
	if c.Text == "" || width(c.Text) > unbroken {
		return style
	}
	if style != "" {
		style += ";"
	}
	return style + "white-space:nowrap"
}

// Bundle is the table as plain text and as HTML.
func (t Table) Bundle() Bundle { return Bundle{t.Plain(), markup("table", t)} }

// Clock is a duration as 00:12:31.
func Clock(seconds float64) string {
	if !(seconds > 0) { // also NaN
		seconds = 0
	}
	n := int64(math.Min(seconds, 1e9))
	return fmt.Sprintf("%02d:%02d:%02d", n/3600, n/60%60, n%60)
}

// BytesText is a size for people, in powers of 1024.
func BytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// Thousands is 12,345.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural is a number with its noun.
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(n) + " " + noun + "s"
}
