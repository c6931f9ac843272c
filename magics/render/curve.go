package render

import (
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Points are the finite values of a series and their steps.
func Points(s *clusterpb.Series) (steps []int64, values []float64) {
	n := min(len(s.GetSteps()), len(s.GetValues()))
	steps, values = make([]int64, 0, n), make([]float64, 0, n)
	for i, v := range s.GetValues()[:n] {
		if clusterpb.IsFinite(v) {
			steps, values = append(steps, s.GetSteps()[i]), append(values, v)
		}
	}
	return steps, values
}

// MetricNames orders metrics: loss first, then accuracy, then by name, val_ ones
// after their own.
func MetricNames(metrics map[string]float64) []string {
	rank := func(name string) string {
		base, val := strings.CutPrefix(name, "val_")
		r := "2" + base
		switch base {
		case "loss":
			r = "0"
		case "accuracy", "acc":
			r = "1"
		}
		if val {
			r += "~"
		}
		return r
	}
	names := slices.Collect(maps.Keys(metrics))
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	return names
}

// metricsText is "loss 0.3120 · accuracy 0.912".
func metricsText(metrics map[string]float64) string {
	var parts []string
	for _, name := range MetricNames(metrics) {
		parts = append(parts, name+" "+Number(metrics[name]))
	}
	if len(parts) > 8 {
		parts = append(parts[:8], "…")
	}
	return strings.Join(parts, " · ")
}

// Number is a metric with four significant digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1e6:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case a >= 1e-3 && a < 1e6:
		digits := max(0, 3-int(math.Floor(math.Log10(a))))
		return strconv.FormatFloat(v, 'f', min(digits, 5), 64)
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}

// Sparkline draws values in one line of text.
func Sparkline(values []float64, columns int) string {
	values = thin(slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !clusterpb.IsFinite(v) }), columns)
	if len(values) < 2 {
		return ""
	}
	low, high := slices.Min(values), slices.Max(values)
	const bars = "▁▂▃▄▅▆▇█"
	var b strings.Builder
	for _, v := range values {
		at := 0
		if high > low {
			at = int((v - low) / (high - low) * 7.999)
		}
		b.WriteString(string([]rune(bars)[min(max(at, 0), 7)]))
	}
	return b.String()
}

// thin keeps at most n values, evenly, the last one among them.
func thin(values []float64, n int) []float64 {
	if len(values) <= n || n < 2 {
		return values
	}
	out := make([]float64, n)
	for i := range n {
		out[i] = values[i*(len(values)-1)/(n-1)]
	}
	return out
}

// curveColours are told apart, and read, on white and on black.
var curveColours = [...]string{"#3b82f6", "#e8743b", "#19a979", "#945ecf", "#d3a518", "#13a4b4"}

// Curve is a metric's curve as a small image.
type Curve struct {
	Name  string `json:"name"`
	Last  string `json:"last"`
	Range string `json:"range"` // of the values, and of the steps
	// A data URI: JupyterLab removes <svg> from notebooks that are not trusted, and keeps <img>.
	Image string `json:"image"`
}

// URL is the image for a template, which takes no data URI from a string.
func (c Curve) URL() template.URL { return template.URL(c.Image) } //nolint:gosec // it is made here, of numbers

// Size of a curve's image.
const (
	curveWide = 220.0
	curveHigh = 56.0
)

// Curves returns the curves of the first metrics that have at least two values.
func Curves(series []*clusterpb.Series, most int) []Curve {
	var curves []Curve
	for _, s := range SortSeries(series) {
		if len(curves) >= most {
			break
		}
		if c, ok := curve(s, curveColours[len(curves)%len(curveColours)]); ok {
			curves = append(curves, c)
		}
	}
	return curves
}

// SortSeries orders the first series of each metric as MetricNames does.
func SortSeries(series []*clusterpb.Series) []*clusterpb.Series {
	first := map[string]*clusterpb.Series{}
	names := map[string]float64{}
	for _, s := range series {
		if first[s.GetName()] == nil {
			first[s.GetName()], names[s.GetName()] = s, 0
		}
	}
	var out []*clusterpb.Series
	for _, n := range MetricNames(names) {
		out = append(out, first[n])
	}
	return out
}

func curve(s *clusterpb.Series, colour string) (Curve, bool) {
	const room = 3.0
	steps, ys := Points(s)
	if len(ys) < 2 {
		return Curve{}, false
	}
	xs := make([]float64, len(steps))
	for i, step := range steps {
		xs[i] = float64(step)
	}
	x0, x1, y0, y1 := slices.Min(xs), slices.Max(xs), slices.Min(ys), slices.Max(ys)
	var points strings.Builder
	for i := range xs {
		x, y := curveWide/2, curveHigh/2
		if x1 > x0 {
			x = room + (xs[i]-x0)/(x1-x0)*(curveWide-2*room)
		}
		if y1 > y0 {
			y = curveHigh - room - (ys[i]-y0)/(y1-y0)*(curveHigh-2*room)
		}
		fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
	}
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`+
		`<rect width="%.0f" height="%.0f" fill="#808080" opacity=".1"/><polyline points="%s" fill="none" stroke="%s" `+
		`stroke-width="1.6"/></svg>`,
		curveWide, curveHigh, curveWide, curveHigh, curveWide, curveHigh, strings.TrimSpace(points.String()), colour)
	values := Number(y0)
	if y1 > y0 {
		values += " to " + Number(y1)
	}
	return Curve{
		Name: s.GetName(), Last: Number(ys[len(ys)-1]),
		Image: "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(svg)),
		Range: fmt.Sprintf("%s · step %s to %s", values, Thousands(int64(x0)), Thousands(int64(x1))),
	}, true
}
