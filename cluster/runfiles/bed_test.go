package runfiles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// service is a driver with a Receiver; the executor's name is in the metadata.
type service struct {
	clusterpb.UnimplementedCoordinatorServer
	*Receiver
}

func name(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("executor"), "")
}

func (s service) Sync(stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply]) error {
	return s.Append(name(stream.Context()), stream)
}

func (s service) Put(stream grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply]) error {
	return s.Receiver.Put(name(stream.Context()), stream)
}

func (s service) List(_ context.Context, r *clusterpb.ListRequest) (*clusterpb.ListReply, error) {
	return s.Receiver.List(r)
}

func (s service) Get(r *clusterpb.GetRequest, stream grpc.ServerStreamingServer[clusterpb.GetReply]) error {
	return s.Receiver.Get(r, stream)
}

// tricky is a Local with injected faults. It checks what readers would find.
type tricky struct {
	*Local
	t  *testing.T
	mu sync.Mutex
	// guarded by mu
	full    bool
	renames []string
	removes []string
}

func (d *tricky) Room() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return 0, nil
	}
	return d.Local.Room()
}

func (d *tricky) Rename(from, to string, modified time.Time) error {
	d.mu.Lock()
	d.renames = append(d.renames, to)
	d.mu.Unlock()
	err := d.Local.Rename(from, to, modified)
	d.consistent()
	return err
}

func (d *tricky) Remove(name string) error {
	d.mu.Lock()
	d.removes = append(d.removes, name)
	d.mu.Unlock()
	err := d.Local.Remove(name)
	d.consistent()
	return err
}

// consistent fails the test if a state file refers to a missing checkpoint.
func (d *tricky) consistent() {
	files, err := d.Files(".")
	if err != nil {
		d.t.Error(err)
	}
	for _, f := range files {
		if filepath.Base(f.Path) != "checkpoint" {
			continue
		}
		state, err := os.ReadFile(filepath.Join(d.dir, f.Path))
		if err != nil {
			d.t.Error(err)
		}
		for _, prefix := range named(f.Path, state) {
			for _, part := range []string{".index", ".data-00000-of-00001"} {
				if _, err := os.Stat(filepath.Join(d.dir, prefix+part)); err != nil {
					d.t.Errorf("%s refers to a missing file: %v", f.Path, err)
				}
			}
		}
	}
}

// bed is a driver and executors with separate disks.
type bed struct {
	t        *testing.T
	disk     *tricky
	receiver *Receiver
	server   *grpc.Server
	client   clusterpb.CoordinatorClient
	mu       sync.Mutex
	notes    []string // guarded by mu
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, disk: &tricky{Local: NewLocal(t.TempDir()), t: t}}
	b.receiver = NewReceiver(b.disk, "DIR", func(executor string) bool { return executor == "0" }, func(w string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notes = append(b.notes, w)
	})
	b.receiver.Allow(3)
	listener := bufconn.Listen(1 << 20)
	b.server = grpc.NewServer(grpc.WaitForHandlers(true))
	clusterpb.RegisterCoordinatorServer(b.server, service{Receiver: b.receiver})
	var serving sync.WaitGroup
	serving.Go(func() { _ = b.server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///bed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		b.server.Stop()
		serving.Wait()
	})
	b.client = clusterpb.NewCoordinatorClient(conn)
	return b
}

// executor is an executor with a separate disk.
type executor struct {
	*Sender
	t   *testing.T
	ctx context.Context
	dir string
}

func (b *bed) executor(name string) *executor {
	dir := b.t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run-001", "checkpoints"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { root.Close() })
	ctx := metadata.AppendToOutgoingContext(b.t.Context(), "executor", name)
	return &executor{NewSender(b.client, root, 1), b.t, ctx, dir}
}

func (e *executor) write(name, content string) {
	e.t.Helper()
	path := filepath.Join(e.dir, "run-001", name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		e.t.Fatal(err)
	}
}

func (e *executor) remove(name string) {
	e.t.Helper()
	if err := os.Remove(filepath.Join(e.dir, "run-001", name)); err != nil {
		e.t.Fatal(err)
	}
}

// save writes a checkpoint as TensorFlow does, and keeps the last two.
func (e *executor) save(n int) {
	var state strings.Builder
	fmt.Fprintf(&state, "model_checkpoint_path: \"ckpt-%d\"\n", n)
	for i := max(1, n-1); i <= n; i++ {
		fmt.Fprintf(&state, "all_model_checkpoint_paths: \"ckpt-%d\"\n", i)
	}
	e.write(fmt.Sprintf("checkpoints/ckpt-%d.data-00000-of-00001", n), strings.Repeat(fmt.Sprint(n), 1000))
	e.write(fmt.Sprintf("checkpoints/ckpt-%d.index", n), fmt.Sprint(n))
	e.write("checkpoints/checkpoint.tmpabc", state.String())
	if err := os.Rename(filepath.Join(e.dir, "run-001/checkpoints/checkpoint.tmpabc"),
		filepath.Join(e.dir, "run-001/checkpoints/checkpoint")); err != nil {
		e.t.Fatal(err)
	}
	if n > 2 {
		e.remove(fmt.Sprintf("checkpoints/ckpt-%d.data-00000-of-00001", n-2))
		e.remove(fmt.Sprintf("checkpoints/ckpt-%d.index", n-2))
	}
}

func (e *executor) round(end bool) {
	e.t.Helper()
	if err := e.Sync(e.ctx, end, func() {}); err != nil {
		e.t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func (b *bed) names() []string {
	b.t.Helper()
	files, err := b.disk.Files(".")
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
	}
	slices.Sort(names)
	return names
}

func (b *bed) want(names ...string) {
	b.t.Helper()
	if got := b.names(); !slices.Equal(got, names) {
		b.t.Errorf("the driver has\n%q, want\n%q", got, names)
	}
}
