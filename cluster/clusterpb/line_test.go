package clusterpb

import (
	"encoding/json"
	"testing"
)

// TestLineForJSON: the front end's names, and a text that is cut at a character.
func TestLineForJSON(t *testing.T) {
	t.Parallel()
	l := &Line{
		Task: "worker:1", Seq: 7, UnixNano: 1_760_000_000_123_456_789, Stream: Line_STDERR, Text: "äöü", Continues: true,
	}
	const rest = `","continues":true}`
	for longest, text := range map[int]string{0: "äöü", 3: "äöü", 2: "äö …"} {
		got, err := json.Marshal(l.ForJSON(longest))
		want := `{"task":"worker:1","number":7,"time":1760000000123,"error":true,"text":"` + text + rest
		if err != nil || string(got) != want {
			t.Errorf("at most %d characters: %s, %v; want %s", longest, got, err, want)
		}
	}
}
