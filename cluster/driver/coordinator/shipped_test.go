package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// chunks is the stream of a Fetch.
type chunks struct {
	grpc.ServerStreamingServer[clusterpb.Chunk]
	got []byte
}

func (s *chunks) Context() context.Context { return context.Background() }
func (s *chunks) Send(c *clusterpb.Chunk) error {
	s.got = append(s.got, c.GetData()...)
	return nil
}

// TestDamagedCopy: a damaged copy of --files is discarded, and the next start makes another one.
func TestDamagedCopy(t *testing.T) {
	t.Parallel()
	state, given := t.TempDir(), filepath.Join(t.TempDir(), "vocab.txt")
	if err := os.WriteFile(given, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &files{shipped: ship.NewStore(filepath.Join(state, "files"), t.TempDir())}
	for _, damaged := range []bool{true, false} {
		all, err := f.shipped.Files(t.Context(), []*clusterpb.GivenFile{{Path: given, Name: "vocab.txt"}})
		if err != nil {
			t.Fatal(err)
		}
		digest := all[0].GetContent().GetSha256()
		if damaged {
			if err := os.Truncate(filepath.Join(state, "files", digest), 2); err != nil {
				t.Fatal(err)
			}
		}
		s := &chunks{}
		err = f.fetchShipped(&clusterpb.FetchRequest{Sha256: digest}, s)
		if damaged && (err == nil || !strings.Contains(err.Error(), "copy of it was damaged")) ||
			!damaged && (err != nil || string(s.got) != "words") {
			t.Errorf("damaged %t: %q, %v", damaged, s.got, err)
		}
	}
}
