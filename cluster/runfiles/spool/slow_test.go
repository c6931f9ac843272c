package spool_test

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
)

// slow is a file system whose calls take a time.
type slow struct{ takes time.Duration }

func (s slow) wait(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slow) Stat(ctx context.Context, _ string) (fs.FileInfo, error) {
	return nil, cmp.Or(s.wait(ctx), fs.ErrNotExist)
}
func (s slow) MakeDir(ctx context.Context, _ string) error                { return s.wait(ctx) }
func (s slow) Write(ctx context.Context, _ string, _ io.ReadSeeker) error { return s.wait(ctx) }
func (s slow) Remove(ctx context.Context, _ string) error                 { return s.wait(ctx) }

// TestSlowFileSystem: a server that accepts connections may be busy; one that does not is reported soon.
func TestSlowFileSystem(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for _, tt := range []struct {
		name    string
		address string
		takes   time.Duration
		limit   string // in the error; "": none
		within  time.Duration
	}{
		{"quick", gone.Addr().String(), time.Second, "", 5 * time.Second},
		{"busy", busy.Addr().String(), 7 * time.Second, "", 40 * time.Second},
		{"hangs", busy.Addr().String(), time.Minute, "no answer within 30s", 40 * time.Second},
		{"gone", gone.Addr().String(), time.Minute, "no answer within 4.5s", 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := spool.Check(t.Context(), slow{tt.takes}, "hdfs://"+tt.address+"/x")
				if took := time.Since(began); took > tt.within {
					t.Errorf("it takes %s", took)
				}
				if (err != nil) != (tt.limit != "") || err != nil && !strings.Contains(err.Error(), tt.limit) {
					t.Errorf("%v, want %q", err, tt.limit)
				}
			})
		})
	}
}
