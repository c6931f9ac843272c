package kernel

import (
	"bytes"
	"slices"
	"testing"
)

// TestBehindCut: a message whose sending was interrupted does not spoil the next one.
func TestBehindCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, frames, identity, want string }{
		{"whole", "front D sig header", "link", "front D sig header"},
		{"cut behind the routing frame", "link front D sig header", "link", "front D sig header"},
		{"cut in the middle", "front D sig link front D sig header", "link", "front D sig header"},
		{"cut twice", "front D link front link front D sig", "link", "front D sig"},
		{"nothing behind it", "front D link", "link", ""},
		{"a socket without routing", "link D sig", "", "link D sig"},
	} {
		got := behindCut(bytes.Fields([]byte(tt.frames)), tt.identity)
		if want := bytes.Fields([]byte(tt.want)); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
	if behindCut(nil, "link") != nil {
		t.Error("no frames are some")
	}
}
