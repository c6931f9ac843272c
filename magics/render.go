package magics

import (
	"crypto/rand"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// bundle is something shown: HTML and the plain text that says the same.
type bundle struct{ text, html string }

func (b bundle) mime() map[string]any {
	data := map[string]any{"text/plain": b.text}
	if b.html != "" {
		data["text/html"] = frame(b.html)
	}
	return data
}

// frame gives HTML the notebook's own font and colours, so that it fits light and
// dark themes; nothing of it is script.
func frame(body string) string {
	return `<div style="font-size:var(--jp-content-font-size1,13px);line-height:1.5;color:inherit">` + body + `</div>`
}

func esc(s string) string { return html.EscapeString(s) }

// view is one display that is updated in place, at most five times a second.
type view struct {
	out  Displayer
	id   string
	last time.Time
	open bool
}

const viewEvery = 200 * time.Millisecond

func newView(out Displayer) *view { return &view{out: out, id: rand.Text()} }

// show draws the bundle; unless must, not more often than viewEvery.
func (v *view) show(must bool, draw func() bundle) {
	if v.open && !must && time.Since(v.last) < viewEvery {
		return
	}
	data := draw().mime()
	if v.open {
		v.out.Update(v.id, data, nil)
	} else {
		v.out.Display(v.id, data, nil)
	}
	v.open, v.last = true, time.Now()
}

// display shows something once.
func display(out Displayer, b bundle) { out.Display(rand.Text(), b.mime(), nil) }

// table is rows under a head; plain text is aligned, HTML a table.
type table struct {
	head  []string
	right []int // columns aligned right
	rows  [][]cell
}

// cell is a table's cell: text, and how it is meant.
type cell struct {
	text string
	tone tone
}

type tone int

const (
	toneNone tone = iota
	toneGood
	toneBad
	toneBusy
	toneFaint
)

// style of a tone: colours readable on white and on black.
func (t tone) style() string {
	switch t {
	case toneGood:
		return "color:#2e9e4f"
	case toneBad:
		return "color:#e0483e;font-weight:600"
	case toneBusy:
		return "color:#b98300"
	case toneFaint:
		return "opacity:.65"
	default:
		return ""
	}
}

func plain(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, t := range texts {
		cells[i] = cell{text: t}
	}
	return cells
}

// drop removes the columns that are empty in every row.
func (t table) drop() table {
	var keep []int
	for i := range t.head {
		if slices.ContainsFunc(t.rows, func(r []cell) bool { return i < len(r) && r[i].text != "" }) {
			keep = append(keep, i)
		}
	}
	out := table{}
	for at, i := range keep {
		out.head = append(out.head, t.head[i])
		if slices.Contains(t.right, i) {
			out.right = append(out.right, at)
		}
	}
	for _, r := range t.rows {
		var row []cell
		for _, i := range keep {
			row = append(row, r[i])
		}
		out.rows = append(out.rows, row)
	}
	return out
}

// width is how many columns of a terminal a text takes, near enough.
func width(s string) int { return utf8.RuneCountInString(s) }

// plain is the table in aligned text.
func (t table) plain() string {
	widths := make([]int, len(t.head))
	for i, h := range t.head {
		widths[i] = width(h)
	}
	for _, r := range t.rows {
		for i, c := range r {
			widths[i] = max(widths[i], width(c.text))
		}
	}
	var b strings.Builder
	line := func(text func(int) string) {
		var l strings.Builder
		for i := range t.head {
			s := text(i)
			pad := strings.Repeat(" ", max(0, widths[i]-width(s)))
			if slices.Contains(t.right, i) {
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
	line(func(i int) string { return t.head[i] })
	for _, r := range t.rows {
		line(func(i int) string { return r[i].text })
	}
	return b.String()
}

// html is the table for a notebook.
func (t table) html() string {
	var b strings.Builder
	b.WriteString(`<table style="border-collapse:collapse;margin:4px 0;text-align:left;color:inherit;font-size:inherit"><thead><tr>`)
	align := func(i int) string {
		if slices.Contains(t.right, i) {
			return "text-align:right"
		}
		return "text-align:left"
	}
	for i, h := range t.head {
		fmt.Fprintf(&b, `<th style="%s;padding:2px 14px 2px 0;opacity:.65;font-weight:500">%s</th>`, align(i), esc(h))
	}
	b.WriteString("</tr></thead><tbody>")
	for _, r := range t.rows {
		b.WriteString("<tr>")
		for i, c := range r {
			fmt.Fprintf(&b, `<td style="%s;padding:2px 14px 2px 0;vertical-align:top;%s">%s</td>`, align(i), c.tone.style(), esc(c.text))
		}
		b.WriteString("</tr>")
	}
	b.WriteString("</tbody></table>")
	return b.String()
}

func (t table) bundle() bundle { return bundle{t.plain(), t.html()} }

// clock is a duration as 00:12:31.
func clock(seconds float64) string {
	if !(seconds > 0) { // also NaN
		seconds = 0
	}
	n := int64(math.Min(seconds, 1e9))
	return fmt.Sprintf("%02d:%02d:%02d", n/3600, n/60%60, n%60)
}

// bytesText is a size for people, in powers of 1024.
func bytesText(n uint64) string {
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

// thousands is 12,345.
func thousands(n int64) string {
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

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}
