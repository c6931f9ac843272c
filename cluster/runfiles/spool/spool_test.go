package spool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

const dfsAdmin = "org.apache.hadoop.hdfs.tools.DFSAdmin"

// remote adapts an hdfs.FS to spool.Remote.
type remote struct{ *hdfs.FS }

func (r remote) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return r.FS.Open(ctx, name)
}

// bed is the HDFS that the tests share.
type bed struct {
	*hadooptest.Cluster
	remote
}

func (b *bed) as(t *testing.T, user string) remote {
	t.Helper()
	conf, err := hadoopconf.Load(b.Conf)
	if err != nil {
		t.Fatal(err)
	}
	f, err := hdfs.New(hdfs.Config{Conf: conf, User: user, Bridge: time.Second, Stall: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return remote{f}
}

func (b *bed) dir(name string) string { return "hdfs://" + b.Host + ":8020/" + name }

func (b *bed) admin(t *testing.T, args ...string) {
	t.Helper()
	if out, err := b.Command(dfsAdmin, args...); err != nil {
		t.Fatalf("dfsadmin %v: %v\n%s", args, err, out)
	}
}

// under opens a spool of a directory.
func (b *bed) under(t *testing.T, dir, parent string, change ...func(*spool.Config)) *spool.Spool {
	t.Helper()
	c := spool.Config{Remote: b.remote, Dir: dir, Parent: parent, Low: 1}
	for _, f := range change {
		f(&c)
	}
	s, err := spool.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// put writes a file as the Receiver does: to a temporary name, then renamed.
func put(t *testing.T, s *spool.Spool, name, content string) {
	t.Helper()
	aside := path.Join(strings.Split(name, "/")[0], ".part-x")
	w, err := s.Write(aside, 0)
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	if err = errors.Join(err, w.Close(), s.Rename(aside, name, time.Now())); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) holds(t *testing.T, name, want string) {
	t.Helper()
	got, err := b.Read(within(t), name)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %.40q: %v; want %.40q", name, got, err, want)
	}
}

// TestSpool runs all cases on one HDFS; cases that stop it come last.
func TestSpool(t *testing.T) {
	t.Parallel()
	b := &bed{Cluster: hadooptest.Start(t, hadooptest.Options{HDFS: true})}
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	b.remote = b.as(t, user)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *bed)
	}{
		{"uploaded, removed, listed", testCarried},
		{"order", testOrder},
		{"a driver that dies", testDies},
		{"little local space", testLowOnSpace},
		{"two at once", testTwo},
		{"unusable directories", testCheck},
		{"NameNode down", testNameNodeDown},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, b) })
	}
}

func testCarried(t *testing.T, b *bed) {
	ctx, dir, parent := within(t), b.dir("carried"), t.TempDir()
	s := b.under(t, dir, parent)
	if last, err := s.Scan(ctx); err != nil || last != 0 {
		t.Fatalf("the last run is %d: %v", last, err)
	}
	put(t, s, "run-001/checkpoints/old", "1")
	put(t, s, "run-001/checkpoints/step-2/rank-0", "2")
	put(t, s, "run-001/checkpoints/ckpt", "weights")
	put(t, s, "run-001/run.json", "{}")
	grow := func(content string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(s.Folder(), "run-001/logs/events.out.tfevents.1"),
			os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(content); err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Folder(), "run-001/logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	grow("one ")
	if err := s.Flush(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	grow("two")
	if err := s.Remove("run-001/checkpoints/old"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "run-001/checkpoints/ckpt", "better weights")
	if err := s.Rename("run-001/checkpoints/step-2/rank-0", "run-001/torn/1/step-2/rank-0", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Flush(ctx, time.Minute), s.Close()); err != nil {
		t.Fatal(err)
	}
	b.holds(t, dir+"/run-001/logs/events.out.tfevents.1", "one two")
	b.holds(t, dir+"/run-001/checkpoints/ckpt", "better weights")
	b.holds(t, dir+"/run-001/torn/1/step-2/rank-0", "2")
	for _, gone := range []string{"old", "step-2/rank-0"} {
		if _, err := b.Stat(ctx, dir+"/run-001/checkpoints/"+gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the removed %s: %v", gone, err)
		}
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left locally: %v %v", left, err)
	}

	s = b.under(t, dir, parent)
	if last, err := s.Scan(ctx); err != nil || last != 1 {
		t.Fatalf("the last run is %d: %v", last, err)
	}
	if record, err := os.ReadFile(filepath.Join(s.Folder(), "run-001/run.json")); err != nil || string(record) != "{}" {
		t.Errorf("the record is %q: %v", record, err)
	}
	files, err := s.Files("run-001/checkpoints")
	if err != nil || len(files) != 1 || files[0].Size != int64(len("better weights")) {
		t.Errorf("files %v: %v", files, err)
	}
	if err := errors.Join(s.Fetch(ctx, "run-001/checkpoints"), s.FetchAll(ctx, "logs")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"checkpoints/ckpt": "better weights", "logs/events.out.tfevents.1": "one two",
	} {
		if got, err := os.ReadFile(filepath.Join(s.Folder(), "run-001", name)); err != nil || string(got) != want {
			t.Errorf("%s is %q: %v", name, got, err)
		}
	}
	if err := s.Close(); err != nil { // fetched files need no upload
		t.Error(err)
	}
}

// watched records the order in which files arrive.
type watched struct {
	remote
	mu    sync.Mutex
	names []string
}

func (w *watched) Write(ctx context.Context, name string, r io.ReadSeeker) error {
	err := w.remote.Write(ctx, name, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = append(w.names, path.Base(name))
	return err
}

func testOrder(t *testing.T, b *bed) {
	w := &watched{remote: b.remote}
	s := b.under(t, b.dir("order"), t.TempDir(), func(c *spool.Config) { c.Remote = w })
	for _, name := range []string{"checkpoint", "ckpt-1.index", "a/saved_model.pb", "ckpt-1.data-00000-of-00001"} {
		put(t, s, "run-001/checkpoints/"+name, name)
	}
	if err := errors.Join(s.Flush(within(t), time.Minute), s.Close()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.names, " "); got != "ckpt-1.data-00000-of-00001 ckpt-1.index saved_model.pb checkpoint" {
		t.Errorf("they arrived as %s", got)
	}
}

// testDies: a driver that takes over uploads what its predecessor had not, and removes what
// that had removed.
func testDies(t *testing.T, b *bed) {
	ctx, dir, parent := within(t), b.dir("dies"), t.TempDir()
	s := b.under(t, dir, parent)
	put(t, s, "run-001/checkpoints/a", "a")
	put(t, s, "run-001/checkpoints/b", "b")
	if err := s.Flush(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	put(t, s, "run-001/checkpoints/c", "c")
	// A driver's lock ends with its process; the test renames the folder instead.
	other := t.TempDir()
	if err := os.CopyFS(filepath.Join(other, filepath.Base(s.Folder())), os.DirFS(s.Folder())); err != nil {
		t.Fatal(err)
	}
	next := b.under(t, dir, other)
	if err := next.Remove("run-001/checkpoints/a"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(next.Flush(ctx, time.Minute), next.Close()); err != nil {
		t.Fatal(err)
	}
	infos, err := b.List(ctx, dir+"/run-001/checkpoints")
	if err != nil || len(infos) != 2 || infos[0].Name() != "b" || infos[1].Name() != "c" {
		t.Errorf("listed %v: %v", infos, err)
	}
	if err := errors.Join(s.Flush(ctx, time.Minute), s.Close()); err != nil {
		t.Error(err)
	}
}

// testLowOnSpace: files that are on HDFS are evicted locally, and read from there.
func testLowOnSpace(t *testing.T, b *bed) {
	ctx := within(t)
	s := b.under(t, b.dir("lowOnSpace"), t.TempDir(), func(c *spool.Config) { c.Low = math.MaxInt64 })
	put(t, s, "run-001/checkpoints/big", "content")
	put(t, s, "run-001/logs/events.out.tfevents.1", "events")
	if err := s.Flush(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Folder(), "run-001/checkpoints/big")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the local file still exists: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.Folder(), "run-001/logs/events.out.tfevents.1")); err != nil {
		t.Error(err)
	}
	aside := filepath.Join(s.Folder(), ".bring")
	if err := errors.Join(os.RemoveAll(aside), os.WriteFile(aside, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Fetch(ctx, "run-001/checkpoints/big"); err == nil ||
		!strings.HasPrefix(err.Error(), "write to "+s.Folder()+": ") {
		t.Errorf("fetched to a folder that is a file: %v", err)
	}
	if err := os.Remove(aside); err != nil {
		t.Fatal(err)
	}
	stat, err := s.Stat("run-001/checkpoints/big")
	if err != nil || stat.Size != 7 {
		t.Errorf("Stat: %v: %v", stat, err)
	}
	r, err := s.Open("run-001/checkpoints/big")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "content" {
		t.Errorf("the file is %q: %v", got, err)
	}
	if err := errors.Join(r.Close(), s.Remove("run-001/checkpoints/big"), s.Flush(ctx, time.Minute),
		s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := b.Stat(ctx, b.dir("lowOnSpace/run-001/checkpoints/big")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

func testTwo(t *testing.T, b *bed) {
	parent := t.TempDir()
	s := b.under(t, b.dir("two"), parent)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := spool.Open(ctx, spool.Config{Remote: b.remote, Dir: b.dir("two"), Parent: parent}); err == nil ||
		!strings.Contains(err.Error(), "another --dir") {
		t.Errorf("a second cluster: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// testNameNodeDown: without a NameNode files are accepted, users get one message, and the files arrive
// when it is back; at Close they stay local, and the next spool uploads them.
func testNameNodeDown(t *testing.T, b *bed) {
	dir, parent := b.dir("away"), t.TempDir()
	s := b.under(t, dir, parent, func(c *spool.Config) { c.Interval = 10 * time.Millisecond })
	var mu sync.Mutex
	var notes []string
	s.OnNotice(func(text string) { mu.Lock(); defer mu.Unlock(); notes = append(notes, text) })
	said := func() string { mu.Lock(); defer mu.Unlock(); return fmt.Sprintf("%q", notes) }
	running, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(running) })
	b.NameNode.Kill()
	put(t, s, "run-001/checkpoints/a", "a")
	for end := time.Now().Add(time.Minute); !strings.Contains(said(), "training continues") && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	b.NameNode.Start()
	b.AwaitHDFS()
	for end := time.Now().Add(time.Minute); !strings.Contains(said(), "is available again") && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	t.Log(said())
	if len(notes) != 2 {
		t.Errorf("notes: %s", said())
	}
	b.holds(t, dir+"/run-001/checkpoints/a", "a")
	stop()
	wg.Wait()
	put(t, s, "run-001/checkpoints/b", "b")
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), s.Folder()) {
		t.Errorf("Close with a file that was not uploaded: %v", err)
	}
	s = b.under(t, dir, parent)
	if err := errors.Join(s.Flush(within(t), time.Minute), s.Close()); err != nil {
		t.Error(err)
	}
	b.holds(t, dir+"/run-001/checkpoints/b", "b")
}
