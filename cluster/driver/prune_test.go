package driver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// disk is HDFS on a folder of this host.
type disk struct {
	spool.Remote
	folder string
	err    error // of List
}

func (d disk) here(name string) string { return d.folder + strings.TrimPrefix(name, "hdfs://nn") }

func (d disk) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return results.LocalStorage{}.Open(ctx, d.here(name))
}

func (d disk) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	if d.err != nil {
		return nil, d.err
	}
	return results.LocalStorage{}.List(ctx, d.here(name))
}

func (d disk) Remove(ctx context.Context, name string) error {
	return results.LocalStorage{}.Remove(ctx, d.here(name))
}

// TestRetention: a driver whose results are in the default folder on HDFS removes old runs there,
// once a day; not where a person chose the folder, and not with --retention never.
func TestRetention(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TFCLUSTER_HOME", t.TempDir())
	home, err := state.Home()
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(folder, "user/ann/tfcluster-runs/old/run-001")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	for name := run; name != folder; name = filepath.Dir(name) {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	day := (24 * time.Hour).Milliseconds()
	for _, tt := range []struct {
		name string
		dir  string
		age  int64
		err  error
		gone bool
	}{
		{"never", "hdfs://nn/user/ann/tfcluster-runs/new", 0, nil, false},
		{"a folder of the person's", "hdfs://nn/user/ann/mine", day, nil, false},
		{"on this host", run, day, nil, false},
		{"another user's", "hdfs://nn/user/bob/tfcluster-runs/new", day, nil, false},
		{"HDFS is away", "hdfs://nn/user/ann/tfcluster-runs/new", 3 * day, errors.New("away"), false},
		{"young enough", "hdfs://nn/user/ann/tfcluster-runs/new", 3 * day, nil, false},
		{"it was done today", "hdfs://nn/user/ann/tfcluster-runs/new", day, nil, false},
		{"another day", "hdfs://nn/user/ann/tfcluster-runs/new", day, nil, true},
	} {
		stamp, err := pruneStamp("hdfs://nn/user/ann/tfcluster-runs")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(stamp); (err == nil) != (tt.gone || strings.HasPrefix(tt.name, "it was")) {
			t.Errorf("before %s: the stamp: %v", tt.name, err)
		}
		if tt.gone {
			if err := os.Chtimes(stamp, old, old); err != nil {
				t.Fatal(err)
			}
		}
		d := &driver{log: slog.New(slog.DiscardHandler), opt: Options{OpenRemote: func(dir string) (RemoteDir, error) {
			return RemoteDir{Writer: disk{folder: folder, err: tt.err}, Dir: dir, Close: io.NopCloser(nil)}, nil
		}}}
		d.req, d.dir = &clusterpb.ReserveRequest{RetentionMillis: tt.age}, tt.dir
		d.prune(t.Context())
		if _, err := os.Stat(run); (err != nil) != tt.gone {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
