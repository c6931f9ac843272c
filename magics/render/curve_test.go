package render

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestCurves: curves are images, which a notebook that is not trusted keeps, and say the same in
// words; a series of one value has none.
func TestCurves(t *testing.T) {
	t.Parallel()
	curves := Curves([]*clusterpb.Series{
		{Name: "one", Steps: []int64{1}, Values: []float64{1}},
		{Name: "rate", Steps: []int64{0, 5}, Values: []float64{0.5, 0.5}},
		{Name: "<loss>", Steps: []int64{1, 2, 3}, Values: []float64{2, math.NaN(), 1}},
	}, 3)
	if len(curves) != 2 || curves[1].Range != "0.5000 · step 0 to 5" {
		t.Fatalf("%+v", curves)
	}
	if curves[0].Name != "<loss>" || curves[0].Range != "1 to 2 · step 1 to 3" {
		t.Fatalf("%+v", curves)
	}
	data, ok := strings.CutPrefix(curves[0].Image, "data:image/svg+xml;base64,")
	svg, err := base64.StdEncoding.DecodeString(data)
	if !ok || err != nil || !strings.HasPrefix(string(svg), "<svg xmlns=") || strings.Count(string(svg), ",") != 2 {
		t.Errorf("the image is %s, %v", svg, err)
	}
	html := Bundle{}.Curves(curves).HTML()
	if strings.Contains(html, "<svg") || !strings.Contains(html, `src="data:image/svg`) ||
		!strings.Contains(html, "&lt;loss&gt;") || strings.Contains(html, "ZgotmplZ") {
		t.Errorf("the HTML is %s", html)
	}
}
