package events

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestWriter: what is written is read again, by NewDir only where the name does not end as it is
// told to leave out.
func TestWriter(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logs")
	w := NewWriter(dir, ".ours")
	want := []Scalar{{"loss", 1, 0.5, 100.25}, {"loss", 1 << 40, 0.25, 101}}
	for _, s := range want {
		if err := w.Append([]Scalar{s}); err != nil {
			t.Fatal(err)
		}
	}
	found, err := NewDir(dir, "").Next()
	var got []Scalar
	for _, f := range found {
		got = append(got, f.Scalar)
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read again are %v, %v", got, err)
	}
	if found, err := NewDir(dir, ".ours").Next(); err != nil || len(found) != 0 {
		t.Errorf("of others are %v, %v", found, err)
	}
	if err := w.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
