package agent

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func FuzzControl(f *testing.F) {
	f.Add([]byte(`{"op":"report","step":3,"metrics":{"loss":0.5}}` + "\n"))
	f.Add([]byte(`{"op":"result","json":"1","pickled_b64":"AA=="}` + "\n"))
	f.Add(
		[]byte(`{"op":"activity","counter":"ctx","step":7,"phase":"step","marks":9,"seconds":2.5,"own_seconds":0.25}` + "\n"))
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
	stream := `{"op":"note","text":"` + strings.Repeat("x", maxControl) + "\"}\n" + `{"op":"entered"}` + "\nno json\n" +
		`{"op":"server_join"}` + "\n"
	var ops []string
	readControl(strings.NewReader(stream), func(m controlMessage) { ops = append(ops, m.Op) })
	if !slices.Equal(ops, []string{"entered", "server_join"}) {
		t.Errorf("handled %q", ops)
	}
}

// TestActivity: how far a program is, with and without the time outside of collective operations.
func TestActivity(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]*clusterpb.Activity{
		`{"op":"activity","counter":"ctx","step":7,"phase":"step","marks":9,"seconds":2.5,"own_seconds":0}`: {
			Counter: "ctx", Step: 7, Phase: "step", Marks: 9, Seconds: 2.5, Measured: true,
		},
		`{"op":"activity","phase":"first_step","marks":1,"seconds":0.5}`: {Phase: "first_step", Marks: 1, Seconds: 0.5},
	} {
		m, ok := parseControl([]byte(line))
		if !ok || !proto.Equal(m.activity, want) {
			t.Errorf("%s: %v", line, m.activity)
		}
	}
}
