package agent

import (
	"slices"
	"strings"
	"testing"
)

func FuzzControl(f *testing.F) {
	f.Add([]byte(`{"op":"report","step":3,"metrics":{"loss":0.5}}` + "\n"))
	f.Add([]byte(`{"op":"result","json":"1","pickled_b64":"AA=="}` + "\n"))
	f.Add([]byte("\x00\n{}\n{\"op\":1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		readControl(strings.NewReader(string(data)), func(m controlMessage) {
			if m.Op == "" {
				t.Error("a message without op was handled")
			}
			if m.Op == "result" {
				_, _ = m.result()
			}
		})
	})
}

func TestControlPassesOverALineThatIsTooLong(t *testing.T) {
	t.Parallel()
	stream := `{"op":"note","text":"` + strings.Repeat("x", maxControl) + "\"}\n" + `{"op":"entered"}` + "\nno json\n" + `{"op":"server_join"}` + "\n"
	var ops []string
	readControl(strings.NewReader(stream), func(m controlMessage) { ops = append(ops, m.Op) })
	if !slices.Equal(ops, []string{"entered", "server_join"}) {
		t.Errorf("handled %q", ops)
	}
}
