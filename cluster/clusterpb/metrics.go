package clusterpb

import (
	"maps"
	"math"
)

// IsFinite reports whether a metric's value can be drawn and written as JSON.
func IsFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// FiniteMetrics returns a copy of the metrics without those that are not finite.
func (x *Report) FiniteMetrics() map[string]float64 {
	out := map[string]float64{}
	maps.Copy(out, x.GetMetrics())
	maps.DeleteFunc(out, func(_ string, v float64) bool { return !IsFinite(v) })
	return out
}
