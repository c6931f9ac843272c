package hdfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

const dfsAdmin = "org.apache.hadoop.hdfs.tools.DFSAdmin"

// open returns an FS for a user.
func open(t *testing.T, c *hadooptest.Cluster, user string, bridge time.Duration) *hdfs.FS {
	t.Helper()
	conf, err := hadoopconf.Load(c.Conf)
	if err != nil {
		t.Fatal(err)
	}
	if user == "" {
		if user, err = hadoopconf.User(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := hdfs.New(hdfs.Config{Conf: conf, User: user, Bridge: bridge, Stall: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// content returns pseudo-random bytes of a seed, so that a wrong byte is detected at any
// offset.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestHDFS runs all cases on one HDFS; cases that stop it come last.
func TestHDFS(t *testing.T) {
	t.Parallel()
	c := hadooptest.Start(t, hadooptest.Options{HDFS: true})
	for _, tt := range []struct {
		name string
		test func(*testing.T, *hadooptest.Cluster)
	}{
		{"write, read, list, remove", testVerbs},
		{"names", testNames},
		{"a log grows", testGrow},
		{"a reader detects a replaced file", testReplaced},
		{"local errors are not retried", testLocalError},
		{"modes", testModes},
		{"permission", testPermission},
		{"quota", testQuota},
		{"safe mode", testSafeMode},
		{"a hanging NameNode", testPaused},
		{"a NameNode's restart", testRestart},
		{"no NameNode", testNoNameNode},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, c) })
	}
}

func testVerbs(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Minute), deadline(t)
	for i, size := range []int{0, 1, 5 << 20} {
		name, want := "/verbs/a/b/file", content(uint64(i), size)
		if err := f.Write(ctx, name, bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		got, err := f.Read(ctx, name)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d of %d bytes: %v", len(got), size, err)
		}
	}
	if err := f.MakeDir(ctx, "/verbs/a/b/dir"); err != nil {
		t.Fatal(err)
	}
	infos, err := f.List(ctx, "/verbs/a/b")
	if err != nil || len(infos) != 2 || infos[0].Name() != "dir" || !infos[0].IsDir() || infos[1].Name() != "file" ||
		infos[1].Size() != 5<<20 {
		t.Errorf("listed %v: %v", infos, err)
	}
	r, err := f.Open(ctx, "/verbs/a/b/file")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	part := make([]byte, 1000)
	if _, err := r.Seek(-500, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(r, part); n != 500 || !errors.Is(err, io.ErrUnexpectedEOF) ||
		!bytes.Equal(part[:n], content(2, 5<<20)[5<<20-500:]) {
		t.Errorf("read %d bytes at the end: %v", n, err)
	}
	for range 2 { // removing a missing file succeeds
		if err := f.Remove(ctx, "/verbs"); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		second(f.Stat(ctx, "/verbs")), second(f.List(ctx, "/verbs")), second(f.Read(ctx, "/verbs/a")),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/verbs") {
			t.Errorf("List of a removed folder: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func testNames(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Minute), deadline(t)
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	full := path.Join("/user", user, "names/x")
	for _, name := range []string{
		"names/x", full, "hdfs://" + full, fmt.Sprintf("hdfs://%s:8020%s", c.Host, full), "hdfs://" + c.Host + full,
	} {
		if err := f.Write(ctx, name, strings.NewReader(name)); err != nil {
			t.Errorf("write %s: %v", name, err)
			continue
		}
		if got, err := f.Read(ctx, full); err != nil || string(got) != name {
			t.Errorf("wrote %s, read %q: %v", name, got, err)
		}
	}
	for _, name := range []string{"", "s3://bucket/x"} {
		if err := second(f.Read(ctx, name)); err == nil {
			t.Errorf("no error for the name %q", name)
		}
	}
}

func testGrow(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Minute), deadline(t)
	all := content(7, 300_000)
	for _, size := range []int{0, 1, 1, 70_000, 70_001, 300_000, 100} { // the last one rewrites the file
		if err := f.Grow(ctx, "/grow/log", bytes.NewReader(all), int64(size)); err != nil {
			t.Fatalf("grow to %d: %v", size, err)
		}
		if got, err := f.Read(ctx, "/grow/log"); err != nil || !bytes.Equal(got, all[:size]) {
			t.Fatalf("read %d bytes, want %d: %v", len(got), size, err)
		}
	}
}

func testReplaced(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Minute), deadline(t)
	if err := f.Write(ctx, "/replaced", bytes.NewReader(content(1, 3<<20))); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(ctx, "/replaced")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := f.Write(ctx, "/replaced", bytes.NewReader(content(2, 4<<20))); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("read %d bytes: %v", len(got), err)
	}
}

// broken fails in the middle of the data.
type broken struct{ io.ReadSeeker }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.ReadSeeker.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("the disk is on fire")
	}
	return n, err
}

func testLocalError(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Hour), deadline(t)
	if err := f.Write(ctx, "/local/x", strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	err := f.Write(ctx, "/local/x", broken{strings.NewReader("new")})
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("Write of unreadable data: %v", err)
	}
	if got, err := f.Read(ctx, "/local/x"); string(got) != "old" {
		t.Errorf("the file is %q: %v", got, err)
	}
	if out, err := c.Command("org.apache.hadoop.fs.FsShell", "-ls", "-C", "/local"); err != nil ||
		strings.TrimSpace(out) != "/local/x" {
		t.Errorf("the folder holds %q: %v", out, err)
	}
}

// oneLine checks a message for users.
func oneLine(t *testing.T, err, is error, words ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Fatalf("the error is %v, want %v", err, is)
	}
	t.Log(err)
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

func testPermission(t *testing.T, c *hadooptest.Cluster) {
	alice, ctx := open(t, c, "alice", time.Hour), deadline(t)
	if err := open(t, c, "", time.Minute).Write(ctx, "/private/x", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		alice.Write(ctx, "/private/y", strings.NewReader("y")), alice.Write(ctx, "/new/y", strings.NewReader("y")),
		alice.Remove(ctx, "/private"), alice.Grow(ctx, "/private/x", strings.NewReader("xy"), 2),
	} {
		oneLine(t, err, fs.ErrPermission, "alice", "hdfs://")
	}
}

func testQuota(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Hour), deadline(t)
	for _, d := range []string{"/names", "/space"} {
		if err := f.MakeDir(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Command(dfsAdmin, "-setQuota", "1", "/names"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Command(dfsAdmin, "-setSpaceQuota", "1000", "/space"); err != nil {
		t.Fatal(err)
	}
	oneLine(t, f.Write(ctx, "/names/x", strings.NewReader("x")), hdfs.ErrQuota, "of directory /names is exceeded")
	oneLine(t, f.Write(ctx, "/space/x", strings.NewReader("x")), hdfs.ErrQuota, "quota of /space is exceeded")
	if infos, err := f.List(ctx, "/space"); err != nil || len(infos) != 0 {
		t.Errorf("left in /space: %v %v", infos, err)
	}
}

func testSafeMode(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Hour), deadline(t)
	if _, err := c.Command(dfsAdmin, "-safemode", "enter"); err != nil {
		t.Fatal(err)
	}
	oneLine(t, f.Write(ctx, "/safe/x", strings.NewReader("x")), hdfs.ErrSafeMode, "-safemode leave")
	if _, err := c.Command(dfsAdmin, "-safemode", "leave"); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(ctx, "/safe/x", strings.NewReader("x")); err != nil {
		t.Error(err)
	}
}

func testPaused(t *testing.T, c *hadooptest.Cluster) {
	f := open(t, c, "", time.Minute)
	if err := f.Write(deadline(t), "/paused", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	c.NameNode.Pause()
	defer c.NameNode.Resume() // also if the test fails, for the next one
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	oneLine(t, second(f.Read(ctx, "/paused")), context.DeadlineExceeded, "/paused")
	done := make(chan error)
	go func() { done <- second(f.Read(deadline(t), "/paused")) }()
	c.NameNode.Resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// testRestart: reads and writes continue when the NameNode is killed and restarted.
func testRestart(t *testing.T, c *hadooptest.Cluster) {
	f, ctx := open(t, c, "", time.Minute), deadline(t)
	old := content(3, 1<<20)
	if err := f.Write(ctx, "/restart/old", bytes.NewReader(old)); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(ctx, "/restart/old")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.NameNode.Kill()
	writes := make(chan error, 3)
	go func() {
		writes <- f.Write(ctx, "/restart/new", bytes.NewReader(old))
		writes <- f.Grow(ctx, "/restart/old", bytes.NewReader(append(old, 'x')), int64(len(old)+1))
		_, err := f.List(ctx, "/restart")
		writes <- err
	}()
	c.NameNode.Start()
	for range cap(writes) {
		if err := <-writes; err != nil {
			t.Error(err)
		}
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, old) {
		t.Errorf("read %d bytes: %v", len(got), err)
	}
	if infos, err := f.List(ctx, "/restart"); err != nil || len(infos) != 2 || infos[1].Size() != int64(len(old)+1) {
		t.Errorf("listed %v: %v", infos, err)
	}
}

func testNoNameNode(t *testing.T, c *hadooptest.Cluster) {
	c.NameNode.Kill()
	f := open(t, c, "", time.Second)
	oneLine(t, f.Write(deadline(t), "/x", strings.NewReader("x")), hdfs.ErrUnreachable, c.Host+":8020")
}
