package session

import (
	"encoding/json"
	"os"
	"testing"
)

// TestLastUsed: after a shutdown, a command without -c means the cluster that was used
// before, whatever the names are.
func TestLastUsed(t *testing.T) {
	t.Parallel()
	s := &State{clusters: map[string]*Handle{}}
	for _, name := range []string{"c", "a", "b", "a", "z"} {
		s.use(name)
	}
	for _, want := range []string{"z", "a", "b", "c", ""} {
		if got := s.LastName(); got != want {
			t.Errorf("the last used cluster is %q, want %q", got, want)
		}
		s.Forget(want)
	}
}

// TestBoardPaths: the answers have exactly those paths that the extension accepts as a TensorBoard's.
func TestBoardPaths(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../jupyter-ext/testdata/comm.json")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Paths struct{ Good, Bad []string } `json:"paths"`
	}
	if err := json.Unmarshal(raw, &said); err != nil || len(said.Paths.Good) == 0 || len(said.Paths.Bad) == 0 {
		t.Fatalf("the transcript holds %+v, %v", said, err)
	}
	for want, paths := range map[bool][]string{true: said.Paths.Good, false: said.Paths.Bad} {
		for _, path := range paths {
			if isBoardPath(path) != want {
				t.Errorf("isBoardPath(%q) is %v", path, !want)
			}
		}
	}
}
