package hdfs

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.csv", "a.csv", true},
		{"*.csv", ".a.csv", false},
		{"*.csv", "x/a.csv", false},
		{"part-?/[ab]", "part-1/b", true},
		{"part-?/[ab]", "part-1/c", false},
		{"**", "x/y/z", true},
		{"**/*.csv", "a.csv", true},
		{"**/*.csv", "x/y/a.csv", true},
		{"**/*.csv", "x/.y/a.csv", false},
		{"x/**/z", "x/z", true},
		{"[", "[", false},
	} {
		if got := match(strings.Split(tt.pattern, "/"), strings.Split(tt.name, "/")); got != tt.want {
			t.Errorf("%s matches %s: %v", tt.pattern, tt.name, got)
		}
	}
}
