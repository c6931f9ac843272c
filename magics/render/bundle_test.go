package render

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestBundleEscapes: hostile text stays text in every part of a bundle, and the plain text has it as it is.
func TestBundleEscapes(t *testing.T) {
	t.Parallel()
	const evil = `</div><img src=x onerror=alert(1)><script>"'&{{.}}`
	table := Table{Head: []string{evil}, Rows: [][]Cell{{{Text: evil, Tone: ToneBad}}}}
	curves := Curves([]*clusterpb.Series{{Name: evil, Steps: []int64{1, 2}, Values: []float64{1, 2}}}, 1)
	for name, b := range map[string]Bundle{
		"title": Title(evil), "line": Line(evil), "faint": Title("t").Faint(evil), "busy": Title("t").Busy(evil),
		"code": Line("l").Code("a", evil), "table": Line("l").Table(table), "details": Line("l").Details(evil, Line(evil)),
		"append": Line("l").Append(Title(evil)), "toned": Bundle{}.title(evil, ToneBad), "curves": Line(evil).Curves(curves),
	} {
		html := b.HTML()
		for _, bad := range []string{"<script", "<img src=x", `"'`, "ZgotmplZ"} {
			if strings.Contains(html, bad) {
				t.Errorf("%s: %s in %s", name, bad, html)
			}
		}
		if !strings.Contains(html, "&lt;img src=x onerror=alert(1)&gt;") || !strings.Contains(html, "{{.}}") {
			t.Errorf("%s: the text is missing: %s", name, html)
		}
		if !strings.Contains(b.Text, evil+"\n") {
			t.Errorf("%s: the plain text is %q", name, b.Text)
		}
	}
}

// TestBundle: a bundle without HTML is plain text for a front end, and styles reach the HTML.
func TestBundle(t *testing.T) {
	t.Parallel()
	if data := (Bundle{}).Plain("text").MIME(); len(data) != 1 || data["text/plain"] != "text\n" {
		t.Errorf("plain text alone: %v", data)
	}
	b := Bundle{}.title("bad", ToneBad).Line("plain").Append(bar(0.425)).Table(
		Table{Head: []string{"n"}, Right: []int{0}, Rows: [][]Cell{{{Text: "1", Tone: ToneGood}}}})
	html := b.HTML()
	for _, want := range []string{
		`<b style="color:#e0483e;font-weight:600">bad</b>`, "<div>plain</div>", "width:42.5%", `<th style="text-align:right;`,
		`color:#2e9e4f;white-space:nowrap">1</td>`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s in %s", want, html)
		}
	}
	if want := "bad\nplain\n[" + strings.Repeat("█", 13) + strings.Repeat("·", 17) + "]  42 %\nn\n1\n"; b.Text != want {
		t.Errorf("the text is %q, not %q", b.Text, want)
	}
}

// TestTableWraps: short cells such as a time stay on one line beside long ones, which wrap.
func TestTableWraps(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("loss 0.1155 · ", 5)
	html := Table{Head: []string{"started", "metrics"}, Rows: [][]Cell{Row("2026-01-02 15:04:05", long)}}.Bundle().HTML()
	if !strings.Contains(html, `white-space:nowrap">2026-01-02 15:04:05</td>`) || strings.Contains(html, `nowrap">`+long) {
		t.Errorf("the table is %s", html)
	}
}
