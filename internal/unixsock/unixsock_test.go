package unixsock

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestUmaskUnchanged: files that other goroutines create while a socket is opened get the mode
// they request.
func TestUmaskUnchanged(t *testing.T) {
	t.Parallel()
	sockets, dir := shortDir(t), t.TempDir()
	over := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			name := filepath.Join(dir, string(rune('a'+i%26)))
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Error(err)
				return
			}
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("a folder created with mode 0700 has %v: %v", info.Mode(), err)
				return
			}
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		path := filepath.Join(sockets, "s.sock")
		ln, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the mode of the socket is %v: %v", info.Mode(), err)
		}
		ln.Close()
	}
	close(over)
	others.Wait()
}

// shortDir returns a folder for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tfcluster-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestSweep: sockets of processes that were killed are removed, those of others and young ones stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "sweep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	paths := map[string]string{
		"alive": filepath.Join(dir, "s-alive"), "dead": filepath.Join(dir, "s-dead"), "other": filepath.Join(dir, "t-dead"),
	}
	for name, path := range paths {
		ln, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if name == "alive" {
			defer ln.Close()
			continue
		}
		ln.(*ownListener).UnixListener.Close() // as when its process is killed
	}
	left := func() (names string) {
		for _, name := range []string{"alive", "dead", "other"} {
			if _, err := os.Stat(paths[name]); err == nil {
				names += name + " "
			}
		}
		return names
	}
	Sweep(filepath.Join(dir, "s-*"))
	if got := left(); got != "alive other " {
		t.Errorf("left: %s", got)
	}
}
