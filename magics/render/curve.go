package render

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Finite leaves out the metrics that are no number.
func Finite(metrics map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, v := range metrics {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[name] = v
		}
	}
	return out
}

// FiniteValues leaves out the values that are no number.
func FiniteValues(values []float64) []float64 {
	out := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

// Points are the finite values of a series and their steps.
func Points(s *clusterpb.Series) (steps []int64, values []float64) {
	n := min(len(s.GetSteps()), len(s.GetValues()))
	steps, values = make([]int64, 0, n), make([]float64, 0, n)
	for i, v := range s.GetValues()[:n] {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
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
	values = thin(FiniteValues(values), columns)
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

// Curves is a small SVG a metric, native: no script, nothing to load.
func Curves(series []*clusterpb.Series, most int) string {
	var b strings.Builder
	drawn := 0
	for _, s := range SortSeries(series) {
		if drawn >= most {
			break
		}
		if svg := curve(s, curveColours[drawn%len(curveColours)]); svg != "" {
			b.WriteString(svg)
			drawn++
		}
	}
	return b.String()
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

func curve(s *clusterpb.Series, colour string) string {
	const wide, high, room = 220.0, 56.0, 3.0
	steps, ys := Points(s)
	if len(ys) < 2 {
		return ""
	}
	xs := make([]float64, len(steps))
	for i, step := range steps {
		xs[i] = float64(step)
	}
	x0, x1, y0, y1 := slices.Min(xs), slices.Max(xs), slices.Min(ys), slices.Max(ys)
	var points strings.Builder
	for i := range xs {
		x, y := wide/2, high/2
		if x1 > x0 {
			x = room + (xs[i]-x0)/(x1-x0)*(wide-2*room)
		}
		if y1 > y0 {
			y = high - room - (ys[i]-y0)/(y1-y0)*(high-2*room)
		}
		fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
	}
	return fmt.Sprintf(`<div style="display:inline-block;margin:4px 18px 4px 0"><div>%s <b>%s</b></div>`+
		`<svg width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`+
		`<rect width="%.0f" height="%.0f" fill="currentColor" opacity=".06"/><polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/></svg>`+
		`<div style="opacity:.65;font-size:85%%">%s to %s · step %s to %s</div></div>`,
		Escape(s.GetName()), Number(ys[len(ys)-1]), wide, high, wide, high, Escape(s.GetName()), wide, high, strings.TrimSpace(points.String()), colour,
		Number(y0), Number(y1), Thousands(int64(x0)), Thousands(int64(x1)))
}
