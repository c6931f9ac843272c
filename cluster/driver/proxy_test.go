package driver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// queued is an engine that takes a driver, and has no room for it yet.
type queued struct {
	lost
	asked func() // where it is
	ended atomic.Bool
}

func (q *queued) Submit(context.Context, cluster.Request, []byte) (cluster.RemoteDriver, error) {
	return q, nil
}

func (q *queued) Upload(context.Context, *clusterpb.ReserveRequest, *clusterpb.Blob, io.ReadSeeker) error {
	return nil
}

func (q *queued) Find(*clusterpb.ReserveRequest, []byte) (cluster.RemoteDriver, error) { return q, nil }

func (q *queued) ID() string { return "queued-1" }

func (q *queued) Saved() []byte { return []byte(`"queued-1"`) }
func (q *queued) Close() error  { return nil }

func (q *queued) Endpoint(context.Context) (address, waits string, err error) {
	q.asked()
	return "", "there is no room", nil
}

func (q *queued) Kill(context.Context) error {
	q.ended.Store(true)
	return nil
}

// nowhere takes what shows that a directory can be written.
type nowhere struct{ driver.RemoteReader }

func (nowhere) Stat(context.Context, string) (fs.FileInfo, error)  { return nil, fs.ErrNotExist }
func (nowhere) MakeDir(context.Context, string) error              { return nil }
func (nowhere) Write(context.Context, string, io.ReadSeeker) error { return nil }
func (nowhere) Remove(context.Context, string) error               { return nil }

// fronted are the options of a driver before an engine.
func fronted(q cluster.Backend) driver.Options {
	return driver.Options{
		Engines: cluster.Engines{{Name: "queued", Backend: q}}, OpenRemote: func(dir string) (driver.RemoteDir, error) {
			return driver.RemoteDir{Reader: nowhere{}, Dir: "hdfs://" + dir, Close: silent{}}, nil
		},
	}
}

// claimed is what the driver of a new cluster c reads, in a home of its own.
func claimed(t *testing.T, request string) io.Reader {
	t.Helper()
	home, err := os.MkdirTemp("/tmp", "tfcluster-driver-test") // sockets' paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	t.Setenv("TFCLUSTER_HOME", home)
	t.Setenv("XDG_RUNTIME_DIR", home)
	dir, err := state.Dir("c")
	if err == nil {
		err = os.MkdirAll(dir, 0o700) // the process that starts a driver has created its folder
	}
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(state.DriverInput{Request: []byte(request)})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(input)
}

// TestFrontEnded: a machine that is shut down while the engine has no room for the driver
// yet takes a reservation with it, but no run that was left to the engine.
func TestFrontEnded(t *testing.T) {
	for begin, stays := range map[string]bool{"": false, `,"begin":{}`: true} {
		stdin := claimed(t,
			`{"name":"c","backend":"queued","engine":{"managed":"true"},"roles":[{"name":"worker","count":1}]`+begin+`}`)
		ctx, end := context.WithCancel(t.Context())
		q := &queued{asked: end}
		if err := driver.Main(ctx, fronted(q), stdin, silent{}); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s, err := state.Load("c")
		if kept := err == nil && s.Allocation == "queued-1"; kept != stays || q.ended.Load() == stays {
			t.Errorf("with %q it is ended: %v; the state is %v: %v", begin, q.ended.Load(), s, err)
		}
	}
}

// full is an engine that takes a driver while the disk fills up.
type full struct {
	queued
	heard chan *clusterpb.ReserveUpdate // by a client that asked before; closed at its end
}

func (f *full) Submit(ctx context.Context, _ cluster.Request, _ []byte) (cluster.RemoteDriver, error) {
	client, err := client.Dial(ctx, "c")
	if err != nil {
		return nil, err
	}
	stream, err := client.Reserve(context.WithoutCancel(ctx), &clusterpb.ReserveRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	go func() { // ends with the stream, which ends with the driver
		defer client.Close()
		defer close(f.heard)
		for {
			u, err := stream.Recv()
			if err != nil {
				return
			}
			f.heard <- u
		}
	}()
	dir, err := state.Dir("c")
	if err != nil {
		return nil, err
	}
	state := filepath.Join(dir, "state.json")
	return f, errors.Join(os.Remove(state), os.MkdirAll(filepath.Join(state, "full"), 0o700))
}

// TestFrontUnsaved: of a driver that was submitted but cannot be written down nobody hears
// as of one that is there: it is ended, and the client is told.
func TestFrontUnsaved(t *testing.T) {
	stdin := claimed(t,
		`{"name":"c","backend":"queued","engine":{"managed":"true"},"roles":[{"name":"worker","count":1}],"begin":{}}`)
	q := &full{
		queued: queued{asked: func() { t.Error("it is asked for") }}, heard: make(chan *clusterpb.ReserveUpdate, 1000),
	}
	if err := driver.Main(t.Context(), fronted(q), stdin, silent{}); err == nil || !strings.Contains(err.Error(),
		"queued-1 was submitted and is ended again, because the cluster's state cannot be saved: ") {
		t.Errorf("it ends with %v", err)
	}
	if !q.ended.Load() {
		t.Error("it goes on")
	}
	var last *clusterpb.ReserveUpdate
	for last = range q.heard {
		if last.GetAllocation() != "" {
			t.Errorf("a client hears of %s", last.GetAllocation())
		}
	}
	if f := last.GetFailure().GetSummary(); !strings.HasPrefix(f, "queued-1 was submitted and is ended again, "+
		"because the cluster's state cannot be saved: ") || strings.Contains(f, "\n") {
		t.Errorf("a client is told %q", f)
	}
}
