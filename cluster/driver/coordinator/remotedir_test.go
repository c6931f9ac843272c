package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// elsewhere stands for a spool of which only the folder matters.
type elsewhere struct{ Spool }

func (elsewhere) Folder() string                             { return "/state/.spool-1" }
func (elsewhere) OnNotice(func(string))                      {}
func (elsewhere) Flush(context.Context, time.Duration) error { return errors.New("HDFS unreachable") }

// TestFilesLeft: the record of a cluster whose files could not be uploaded says where they are.
func TestFilesLeft(t *testing.T) {
	t.Parallel()
	why := make(chan string, 100)
	c := coordinate(t, true, func(cfg *Config) {
		cfg.Spool = elsewhere{}
		cfg.Hooks.Record = func(_ []cluster.Application, _ []byte, _ int32, over bool, reason string) error {
			if over {
				why <- reason
			}
			return nil
		}
	})
	<-c.reserved.allocated
	c.do(func() { c.release("shutdown") })
	if got := <-why; !strings.HasPrefix(got, "shutdown; not all files could be written to ") ||
		!strings.Contains(got, "HDFS unreachable; the rest is on the driver's host in /state/.spool-1") {
		t.Errorf("the reason in the record: %q", got)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dir                string
		spool              Spool
		checkpoints, lying string
	}{
		{"/a/b", nil, "/a/b/run-003/checkpoints", "/a/b/run-003/checkpoints"},
		{"hdfs://nn:8020/a", elsewhere{}, "hdfs://nn:8020/a/run-003/checkpoints", "/state/.spool-1/run-003/checkpoints"},
		{"hdfs://nn:8020/", elsewhere{}, "hdfs://nn:8020/run-003/checkpoints", "/state/.spool-1/run-003/checkpoints"},
	} {
		f := files{Directory: Directory{Dir: tt.dir, Spool: tt.spool}}
		st := &clusterpb.RunStatus{Id: 3, CheckpointDir: "where another cluster had it"}
		f.setPaths(st)
		if st.GetCheckpointDir() != tt.checkpoints || f.localPath(st.GetCheckpointDir()) != tt.lying {
			t.Errorf("in %s: %s, here %s", tt.dir, st.GetCheckpointDir(), f.localPath(st.GetCheckpointDir()))
		}
	}
}
