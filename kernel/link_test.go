package kernel

import (
	"bytes"
	"slices"
	"testing"
)

// TestAfterCut: a message whose sending was aborted does not damage the next one.
func TestAfterCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, frames, identity, want string }{
		{"whole", "front D sig header", "link", "front D sig header"},
		{"cut after the routing frame", "link front D sig header", "link", "front D sig header"},
		{"cut in the middle", "front D sig link front D sig header", "link", "front D sig header"},
		{"cut twice", "front D link front link front D sig", "link", "front D sig"},
		{"nothing after it", "front D link", "link", ""},
		{"a socket without routing", "link D sig", "", "link D sig"},
	} {
		got := afterCut(bytes.Fields([]byte(tt.frames)), tt.identity)
		if want := bytes.Fields([]byte(tt.want)); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
	if afterCut(nil, "link") != nil {
		t.Error("afterCut of no frames is not empty")
	}
}
