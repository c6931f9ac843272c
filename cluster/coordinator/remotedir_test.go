package coordinator

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// elsewhere stands for a spool of which only the folder matters.
type elsewhere struct{ Spool }

func (elsewhere) Folder() string { return "/state/.spool-1" }

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
