package runfiles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestCheckpointsComeAndGo: at no time does a state file at the driver or at an executor that
// mirrors it refer to a missing checkpoint; old checkpoints are removed.
func TestCheckpointsComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	chief, evaluator := b.executor("0"), b.executor("1")
	if err := os.RemoveAll(filepath.Join(evaluator.dir, "run-001")); err != nil { // as on a new disk
		t.Fatal(err)
	}
	m := NewMirror(evaluator.Sender, 1, "checkpoints")
	for n := 1; n <= 5; n++ {
		chief.save(n)
		chief.round(false)
		if err := m.Pull(evaluator.ctx); err != nil {
			t.Fatal(err)
		}
		evaluator.round(true) // must send nothing back
		(&tricky{Local: NewLocal(evaluator.dir), t: t}).consistent()
	}
	const folder = "run-001/checkpoints/"
	b.want(folder+"checkpoint", folder+"ckpt-4.data-00000-of-00001", folder+"ckpt-4.index", folder+
		"ckpt-5.data-00000-of-00001", folder+"ckpt-5.index")
	for _, name := range b.names() {
		if got, want := read(t, evaluator.dir, name), read(t, chief.dir, name); got != want {
			t.Errorf("%s is %.20q with the evaluator, %.20q with the chief", name, got, want)
		}
	}
	if entries, _ := os.ReadDir(filepath.Join(evaluator.dir, folder)); len(entries) != 5 {
		t.Errorf("the evaluator has %v", entries)
	}
}

// TestFilesWrittenInPlaceWait: a file that no state file refers to is sent after it is
// unchanged for a while, or at the end.
func TestFilesWrittenInPlaceWait(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("1")
	e.write("export/saved_model.pb", "model")
	e.write("export/variables/variables.index", "index")
	e.write("logs/events.out.tfevents.1", "streamed elsewhere")
	e.write(".17-aside", "not named yet")
	e.write("tasks/worker-0/1.log", "the driver's own")
	e.remove("tasks/worker-0/1.log")
	if err := os.Symlink("/etc/passwd", filepath.Join(e.dir, "run-001/export/link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(e.dir, "run-001/export/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.round(false)
	b.want()
	end := time.Now().Add(time.Minute)
	for len(b.names()) == 0 && time.Now().Before(end) {
		time.Sleep(settled / 4)
		e.round(false)
	}
	b.want("run-001/export/saved_model.pb", "run-001/export/variables/variables.index")
	if got := b.disk.renames; got[len(got)-1] != "run-001/export/saved_model.pb" {
		t.Errorf("renamed in the order %q", got)
	}
	e.write("model.keras", "last")
	e.round(true)
	if got := read(t, b.disk.dir, "run-001/model.keras"); got != "last" {
		t.Errorf("model.keras is %q", got)
	}
}

// TestChiefTakesPrecedence: if two executors write the same file, the chief's is kept, whenever
// it arrives; no executor can remove another's file.
func TestChiefTakesPrecedence(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	chief, worker, other := b.executor("0"), b.executor("1"), b.executor("2")
	worker.write("checkpoints/w", "worker's")
	worker.round(true)
	other.write("checkpoints/w", "other's")
	other.write("part-2", "other's own")
	other.round(true)
	if got := read(t, b.disk.dir, "run-001/checkpoints/w"); got != "worker's" {
		t.Errorf("the file is the %s", got)
	}
	chief.write("checkpoints/w", "chief's")
	chief.round(true)
	worker.write("checkpoints/w", "worker's again")
	worker.round(true)
	worker.remove("checkpoints/w")
	worker.round(true)
	if got := read(t, b.disk.dir, "run-001/checkpoints/w"); got != "chief's" {
		t.Errorf("the file is the %s", got)
	}
	other.remove("part-2")
	other.round(true)
	b.want("run-001/checkpoints/w")
}

// TestBrokenStream: data that has arrived is not sent again, and an incomplete file is never
// renamed.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	e.write("model.keras", string(content))
	var through []int // chunks sent by each attempt
	for range 100 {
		ctx, cancel := context.WithCancel(e.ctx)
		n := 0
		err := e.Sync(ctx, true, func() {
			if n++; n == 20 {
				cancel()
			}
		})
		cancel()
		through = append(through, n)
		if err == nil {
			break
		}
		for _, name := range b.names() {
			if !strings.HasPrefix(filepath.Base(name), partPrefix) {
				t.Fatalf("%s exists", name)
			}
		}
	}
	if got := read(t, b.disk.dir, "run-001/model.keras"); got != string(content) {
		t.Fatalf("%d of %d bytes, after %d", len(got), len(content), through)
	}
	sum := 0
	for _, n := range through {
		sum += n
	}
	if pieces := len(content) / chunk; sum > 3*pieces {
		t.Errorf("%d pieces were sent for a file of %d: %d", sum, pieces, through)
	}
	b.want("run-001/model.keras")
}

// TestFullDisk: users get one message, no partial file is left, and the file arrives once there
// is space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	e.save(1)
	b.disk.full = true
	for range 3 {
		if err := e.Sync(e.ctx, true, func() {}); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Fatalf("Sync returned %v", err)
		}
	}
	if left := e.Left(); len(left) != 3 || left[2] != "run-001/checkpoints/checkpoint" {
		t.Errorf("Left() = %q", left)
	}
	b.want()
	b.mu.Lock()
	first, all := b.notes[0], slices.Compact(slices.Clone(b.notes))
	b.mu.Unlock()
	if len(all) != 1 || !strings.Contains(first, "cannot be stored in DIR on the driver's host: no space left on device") {
		t.Errorf("messages: %q", all)
	}
	b.disk.mu.Lock()
	b.disk.full = false
	b.disk.mu.Unlock()
	e.round(true)
	if len(b.names()) != 3 {
		t.Errorf("the driver has %q", b.names())
	}
}

// TestSweep: Sweep removes the partial file of a killed agent.
func TestSweep(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	e.write("model.keras", strings.Repeat("x", 8<<20))
	ctx, cancel := context.WithCancel(e.ctx)
	if err := e.Sync(ctx, true, cancel); err == nil {
		t.Skip("the file was sent before the agent could be killed")
	}
	leave, err := b.receiver.enter(t.Context(), "0") // waits for the end of the call
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if err := b.receiver.Sweep(1); err != nil {
		t.Fatal(err)
	}
	b.want()
}

// TestInvalidRequests: invalid requests are rejected and have no effect.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if err := os.MkdirAll(filepath.Join(b.disk.dir, "run-001"), 0o755); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(b.disk.dir, "run-001", "out")); err != nil {
		t.Fatal(err)
	}
	e := b.executor("0")
	file := func(path string, size int64) *clusterpb.PutRequest {
		return &clusterpb.PutRequest{Message: &clusterpb.PutRequest_File{File: &clusterpb.FileHead{Path: path, Size: size}}}
	}
	data := func(s string) *clusterpb.PutRequest {
		return &clusterpb.PutRequest{Message: &clusterpb.PutRequest_Data{Data: []byte(s)}}
	}
	digest := func(s string) *clusterpb.PutRequest {
		return &clusterpb.PutRequest{Message: &clusterpb.PutRequest_Sha256{Sha256: s}}
	}
	commit := func(remove ...string) *clusterpb.PutRequest {
		return &clusterpb.PutRequest{Message: &clusterpb.PutRequest_Commit{Commit: &clusterpb.FileCommit{Remove: remove}}}
	}
	for _, c := range []struct {
		what string
		send []*clusterpb.PutRequest
	}{
		{"a parent path", []*clusterpb.PutRequest{file("../x", 0)}},
		{"a parent path inside", []*clusterpb.PutRequest{file("run-001/../../x", 0)}},
		{"an absolute path", []*clusterpb.PutRequest{file("/run-001/x", 0)}},
		{"not a run", []*clusterpb.PutRequest{file("notes/x", 0)}},
		{"the run folder", []*clusterpb.PutRequest{file("run-001", 0)}},
		{"a future run", []*clusterpb.PutRequest{file("run-004/x", 0)}},
		{"another spelling", []*clusterpb.PutRequest{file("run-1/x", 0)}},
		{"the driver's record", []*clusterpb.PutRequest{file("run-001/run.json", 0)}},
		{"the driver's manifest", []*clusterpb.PutRequest{file("run-001/run-manifest.json", 0)}},
		{"the driver's log", []*clusterpb.PutRequest{file("run-001/tasks/worker-0/000000000000.log", 0)}},
		{"a partial file", []*clusterpb.PutRequest{file("run-001/.part-1", 0)}},
		{"a NUL", []*clusterpb.PutRequest{file("run-001/a\x00b", 0)}},
		{"a long name", []*clusterpb.PutRequest{file("run-001/"+strings.Repeat("x/", maxPath), 0)}},
		{"a negative size", []*clusterpb.PutRequest{file("run-001/x", -1)}},
		{"an impossible size", []*clusterpb.PutRequest{file("run-001/x", 1<<62)}},
		{"more data than announced", []*clusterpb.PutRequest{file("run-001/x", 2), data("abc")}},
		{"less data than announced", []*clusterpb.PutRequest{file("run-001/x", 4), data("abc"), digest("")}},
		{"a wrong digest", []*clusterpb.PutRequest{file("run-001/x", 3), data("abc"), digest("ab")}},
		{"data without a file", []*clusterpb.PutRequest{data("abc")}},
		{"a digest without a file", []*clusterpb.PutRequest{digest("")}},
		{"a commit within a file", []*clusterpb.PutRequest{file("run-001/x", 3), data("a"), commit()}},
		{"nothing", []*clusterpb.PutRequest{{}}},
		{"removal of a parent path", []*clusterpb.PutRequest{commit("../x")}},
		{"removal of the record", []*clusterpb.PutRequest{commit("run-001/run.json")}},
		{"a folder behind a link", []*clusterpb.PutRequest{
			file("run-001/out/x", 0), digest("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), commit(),
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			stream, err := b.client.Put(e.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range c.send {
				if stream.Send(m) != nil {
					break
				}
			}
			_ = stream.CloseSend()
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				t.Error("the request was accepted")
			}
		})
	}
	stream, err := b.client.Sync(e.ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&clusterpb.FileChunk{Path: "run-001/out/x", Data: []byte("x")})
	if _, err := stream.CloseAndRecv(); err == nil {
		t.Error("appended through a link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside are %v, %v", entries, err)
	}
	if err := b.receiver.Sweep(1); err != nil {
		t.Fatal(err)
	}
	b.want()
	for _, path := range []string{"../x", "run-001/out/x", "run-001/run.json"} {
		if _, err := b.receiver.storage.Open(path); path == "run-001/out/x" && err == nil {
			t.Error("read through a link")
		}
		get, err := b.client.Get(e.ctx, &clusterpb.GetRequest{Path: path})
		if err == nil {
			_, err = get.Recv()
		}
		if err == nil {
			t.Errorf("%s is served", path)
		}
	}
}

// TestFileChangesDuringTransfer: neither Sender nor Mirror accepts a mixture of two versions.
func TestFileChangesDuringTransfer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	e.write("checkpoints/w", strings.Repeat("a", 4<<20))
	e.round(false)
	e.seen["run-001/checkpoints/w"] = seenVersion{
		e.seen["run-001/checkpoints/w"].stamp, time.Now().Add(-time.Hour), time.Now(),
	}
	var once sync.Once
	err := e.Sync(e.ctx, false, func() { once.Do(func() { e.write("checkpoints/w", strings.Repeat("b", 5<<20)) }) })
	if !errors.Is(err, errChanged) {
		t.Errorf("Sync returned %v", err)
	}
	e.round(true)
	if got := read(t, b.disk.dir, "run-001/checkpoints/w"); got != strings.Repeat("b", 5<<20) {
		t.Errorf("%d bytes arrived", len(got))
	}
}

// TestFileShrinksDuringTransfer: a Sender that meets the end of a file before its size says so at once.
func TestFileShrinksDuringTransfer(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, chunk, chunk + 1} { // what is left of it after its first chunk was sent
		b := newBed(t)
		e := b.executor("0")
		e.write("checkpoints/w", strings.Repeat("a", 4*chunk))
		began := time.Now()
		err := e.Sync(e.ctx, true, func() { _ = os.Truncate(filepath.Join(e.dir, "run-001/checkpoints/w"), size) })
		if !errors.Is(err, errChanged) || time.Since(began) > silence/2 {
			t.Errorf("%d bytes left: after %v: %v", size, time.Since(began), err)
		}
	}
}

// FuzzNamed: any state file is parsed without a failure.
func FuzzNamed(f *testing.F) {
	f.Add("model_checkpoint_path: \"ckpt-1\"\nall_model_checkpoint_paths: \"a \\\"b\\\" \\303\\251\"\n")
	f.Add("model_checkpoint_path: \"/elsewhere/ckpt-1\"")
	f.Fuzz(func(t *testing.T, state string) {
		for _, prefix := range named("run-001/checkpoints/checkpoint", []byte(state)) {
			if fs.ValidPath(prefix) && strings.Contains(prefix, "//") {
				t.Errorf("%q", prefix)
			}
		}
	})
}
