package containerlogs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/tfcluster/tfcluster/cluster/yarn/aggregated"
)

// TestDamagedFile: the files of other nodes are read where one cannot be.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	var infos []fs.FileInfo
	for _, name := range []string{"n1_8041", "n2_8041", "n3_8041"} {
		i, err := fs.Stat(fstest.MapFS{name: &fstest.MapFile{}}, name)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, i)
	}
	damaged := fmt.Errorf("/x: %w", aggregated.ErrCorrupt)
	gone := emitError{errors.New("the reader has left")}
	for _, tt := range []struct {
		name  string
		of    map[string]error // by node
		nodes []string
		want  error
	}{
		{"none", nil, []string{"n1:8041", "n2:8041", "n3:8041"}, nil},
		{"the first", map[string]error{
			"n1:8041": damaged,
			"n3:8041": errors.New("later"),
		}, []string{"n1:8041", "n2:8041", "n3:8041"}, damaged},
		{"the reader", map[string]error{"n2:8041": gone}, []string{"n1:8041", "n2:8041"}, gone},
	} {
		var nodes []string
		err := testReader(nil, nil).fromFolder(t.Context(), "/logs", infos, func(_, node string) error {
			nodes = append(nodes, node)
			return tt.of[node]
		})
		if !errors.Is(err, tt.want) || !slices.Equal(nodes, tt.nodes) {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, nodes, err, tt.nodes, tt.want)
		}
	}
}
