package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestUnusedBlobsGo: each start leaves its program behind; what no task uses is kept
// up to a bound, the newest first.
func TestUnusedBlobsGo(t *testing.T) {
	t.Parallel()
	s := &blobStore{dir: t.TempDir(), kept: 2500}
	hold := func(i int) *os.File {
		f, err := s.hold(t.Context(), &clusterpb.Blob{Data: []byte(strings.Repeat(fmt.Sprint(i), 1000))})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	used := hold(0)
	var unused []string
	for i := 1; i < 6; i++ {
		f := hold(i)
		unused = append(unused, f.Name())
		f.Close()
	}
	again := hold(1) // the last use counts
	again.Close()
	other := &blobStore{dir: s.dir, kept: s.kept} // another agent of this host
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	prune := func(path string) { // a process that is being forked may hold a lock for a moment
		for end := time.Now().Add(patience); exists(path) && time.Now().Before(end); time.Sleep(time.Millisecond) {
			other.prune()
		}
	}
	for _, path := range unused[1:4] {
		prune(path)
	}
	if !exists(used.Name()) {
		t.Error("a blob that is used was removed")
	}
	for i, want := range []bool{true, false, false, false, true} {
		if exists(unused[i]) != want {
			t.Errorf("blob %d is there: %v", i+1, !want)
		}
	}
	used.Close()
	other.kept = 0
	prune(used.Name())
	if left := hold(0); !exists(left.Name()) {
		t.Error("a blob that was removed does not come again")
	}
}

// TestBlobsUnderPruning: who takes a blob has it, whoever else removes unused ones.
func TestBlobsUnderPruning(t *testing.T) {
	t.Parallel()
	s := &blobStore{dir: t.TempDir()}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				s.prune()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 200 {
		f, err := s.hold(t.Context(), &clusterpb.Blob{Data: []byte("program")})
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(f.Name()); err != nil || string(content) != "program" {
			t.Fatalf("it holds %q, %v", content, err)
		}
		f.Close()
	}
}

// TestABlobStoredTwiceIsOneFile: the lock of whoever was first holds for the path.
func TestABlobStoredTwiceIsOneFile(t *testing.T) {
	t.Parallel()
	s := &blobStore{dir: t.TempDir()}
	b := &clusterpb.Blob{Data: []byte("program")}
	first, err := s.hold(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	digest := filepath.Base(first.Name())
	if err := s.store(first.Name(), digest,
		func(w io.Writer) error { _, err := w.Write(b.GetData()); return err }); err != nil {
		t.Fatal(err)
	}
	have, err := first.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if named, err := os.Stat(first.Name()); err != nil || !os.SameFile(have, named) {
		t.Errorf("the file that is held is not the one at its path (%v)", err)
	}
}
