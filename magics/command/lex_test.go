package command

import (
	"strings"
	"testing"
	"time"
)

// TestCellMagic: a cell magic's line may go on over several, its body is all that follows.
func TestCellMagic(t *testing.T) {
	t.Parallel()
	cell, ok := readCell("%%tfcluster start a \\\n b\nline 1\n\n  line 2\n")
	if !ok || cell.body == nil || *cell.body != "line 1\n\n  line 2\n" ||
		strings.Join(strings.Fields(cell.lines[0]), " ") != "start a \\ b" {
		t.Errorf("a cell magic over two lines is %+v, %v", cell, ok)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]int64{
		"512m": 512 << 20, "4g": 4 << 30, "1.5G": 3 << 29, "2GiB": 2 << 30, "1t": 1 << 40, "1048576": 1 << 20,
		"2048kb": 2 << 20,
	} {
		if got, err := ParseSize(given); err != nil || got != want {
			t.Errorf("ParseSize(%q) is %d, %v; want %d", given, got, err, want)
		}
	}
	for given, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "30": 30 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour,
		"1.5h": 90 * time.Minute,
	} {
		if got, err := ParseDuration(given); err != nil || got != want {
			t.Errorf("ParseDuration(%q) is %s, %v; want %s", given, got, err, want)
		}
	}
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for given, want := range map[string]time.Time{
		"10m": now.Add(-10 * time.Minute), "11:30": now.Add(-30 * time.Minute), "13:00": now.Add(-23 * time.Hour),
		"2026-03-04T11:00:00Z": now.Add(-time.Hour), "2026-03-04": now.Add(-12 * time.Hour),
	} {
		if got, err := ParseSince(given, now); err != nil || !got.Equal(want) {
			t.Errorf("parseSince(%q) is %s, %v; want %s", given, got, err, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		"start main_fun $a {b} 'c' \"d\" # e", `a\ b {x['}']}`, "{{", "$", "logs -fn20 --now {",
		"reserve --ps-memory 4g --role=a=1 ?", "\\", "%%", "start é$ü{ü}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, expand := range []bool{false, true} {
			if _, err := lex(line, expand); err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: more than a line: %v", line, err)
			}
		}
		for _, code := range []string{line, "%tfcluster " + line, "%%tfcluster " + line} {
			readCell(code)
			if before, ok := magicAt(code, len(code)/2); ok && !strings.Contains(code, strings.TrimSpace(before)) {
				t.Errorf("%q: before the cursor is %q", code, before)
			}
		}
	})
}

// FuzzLiteral: what is quoted comes out as it went in, and is never expanded.
func FuzzLiteral(f *testing.F) {
	f.Add("$a {b} # c \\")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		quoted := "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
		got, err := lex(quoted, true)
		if err != nil || len(got) != 1 {
			t.Fatalf("lex(%q) is %v, %v", quoted, got, err)
		}
		if back, ok := got[0].literal(); !ok || back != text {
			t.Errorf("lex(%q) is %q, want %q", quoted, back, text)
		}
	})
}
