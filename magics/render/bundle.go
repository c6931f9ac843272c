package render

import (
	"html/template"
	"strings"
	"sync"
)

// Bundle is something shown: plain text, and HTML that says the same. HTML is made in this package
// alone, by templates, so that text of tasks is always escaped.
type Bundle struct {
	Text string
	html template.HTML
}

// views are the templates of all parts of a bundle. A line has a Style, which may be empty.
var views = sync.OnceValue(func() *template.Template {
	t := template.New("").Funcs(template.FuncMap{"align": align})
	return template.Must(t.Parse(`
{{- define "frame"}}<div class="mathjax_ignore" ` +
		`style="font-size:var(--jp-content-font-size1,13px);line-height:1.5;color:inherit">` +
		`{{.}}</div>{{end}}
{{- define "title"}}<div><b{{with .Style}} style="{{.}}"{{end}}>{{.Line}}</b></div>{{end}}
{{- define "line"}}<div{{with .Style}} style="{{.}}"{{end}}>{{.Line}}</div>{{end}}
{{- define "code"}}<pre style="margin:4px 0;white-space:pre-wrap;color:inherit;background:none">{{.}}</pre>{{end}}
{{- define "stack"}}<pre style="margin:6px 0;color:inherit;background:none;overflow-x:auto">` +
		`{{range .}}<span{{with .Style}} style="{{.}}"{{end}}>{{.Line}}</span>
{{end}}</pre>{{end}}
{{- define "details"}}<details><summary style="opacity:.65;cursor:pointer">{{.Summary}}</summary>` +
		`{{.Body}}</details>{{end}}
{{- define "bar"}}<div style="width:320px;max-width:100%;height:8px;border-radius:4px;` +
		`background:rgba(128,128,128,.25);margin:4px 0">` +
		`<div style="width:{{printf "%.1f" .}}%;height:8px;border-radius:4px;background:#3b82f6"></div></div>{{end}}
{{- define "curves"}}{{range .}}<div style="display:inline-block;margin:4px 18px 4px 0">` +
		`<div>{{.Name}} <b>{{.Last}}</b></div>` +
		`<img width="220" height="56" alt="{{.Name}}" src="{{.URL}}">` +
		`<div style="opacity:.65;font-size:85%">{{.Range}}</div></div>{{end}}{{end}}
{{- define "table"}}{{$t := .}}<table style="border-collapse:collapse;margin:4px 0;` +
		`text-align:left;color:inherit;font-size:inherit"><thead><tr>
{{- range $i, $h := .Head}}<th style="text-align:{{align $t $i}};padding:2px 14px 2px 0;opacity:.65;` +
		`font-weight:500">{{$h}}</th>{{end}}</tr></thead><tbody>
{{- range .Rows}}<tr>{{range $i, $c := .}}<td style="text-align:{{align $t $i}};padding:2px 14px 2px 0;` +
		`vertical-align:top;{{$c.Style}}">{{$c.Text}}</td>{{end}}</tr>{{end}}</tbody></table>{{end}}
`))
})

// markup returns what the template of that name makes of data. The templates are those above, and
// their data has no methods that fail.
func markup(name string, data any) template.HTML {
	var b strings.Builder
	if err := views().ExecuteTemplate(&b, name, data); err != nil {
		panic(err)
	}
	return template.HTML(b.String()) //nolint:gosec // a template has escaped the data
}

// Title returns a bundle of one line in bold.
func Title(line string) Bundle { return Bundle{}.title(line, ToneNone) }

// Line returns a bundle of one line.
func Line(line string) Bundle { return Bundle{}.Line(line) }

// styled is a line with its style.
type styled struct {
	Line  string
	Style template.CSS
}

func (b Bundle) title(line string, tone Tone) Bundle {
	return b.Append(Bundle{line + "\n", markup("title", styled{line, tone.Style()})})
}

func (b Bundle) line(line string, tone Tone) Bundle {
	return b.Append(Bundle{line + "\n", markup("line", styled{line, tone.Style()})})
}

// Line returns the bundle with a line below it.
func (b Bundle) Line(line string) Bundle { return b.line(line, ToneNone) }

// Faint returns the bundle with a line of small importance below it.
func (b Bundle) Faint(line string) Bundle { return b.line(line, ToneFaint) }

// Busy returns the bundle with a line below it that says what is waited for or missing.
func (b Bundle) Busy(line string) Bundle { return b.line(line, ToneBusy) }

// Code returns the bundle with lines of fixed width below it, such as a command or a traceback.
func (b Bundle) Code(lines ...string) Bundle {
	text := strings.Join(lines, "\n")
	return b.Append(Bundle{text + "\n", markup("code", text)})
}

// Table returns the bundle with a table below it.
func (b Bundle) Table(t Table) Bundle { return b.Append(t.Bundle()) }

// Details returns the bundle with another one below it that a notebook shows folded under a summary.
func (b Bundle) Details(summary string, folded Bundle) Bundle {
	return b.Append(Bundle{folded.Text, markup("details", struct {
		Summary string
		Body    template.HTML
	}{summary, folded.html})})
}

// Curves returns the bundle with images of curves below it; its text stays as it is.
func (b Bundle) Curves(curves []Curve) Bundle {
	return b.Append(Bundle{html: markup("curves", curves)})
}

// Plain returns the bundle with a line below it that is in the plain text only.
func (b Bundle) Plain(line string) Bundle { return b.Append(Bundle{Text: line + "\n"}) }

// Append returns the bundle with another one below it.
func (b Bundle) Append(below Bundle) Bundle {
	return Bundle{b.Text + below.Text, b.html + below.html}
}

// HTML returns the bundle's HTML: no script, nothing to load, and the notebook's own font and colours, so
// that it fits light and dark themes.
func (b Bundle) HTML() string {
	if b.html == "" {
		return ""
	}
	return string(markup("frame", b.html))
}

// MIME returns the bundle as a front end takes it.
func (b Bundle) MIME() map[string]any {
	data := map[string]any{"text/plain": b.Text}
	if html := b.HTML(); html != "" {
		data["text/html"] = html
	}
	return data
}
