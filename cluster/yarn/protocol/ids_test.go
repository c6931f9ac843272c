package protocol

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

func TestContainerNames(t *testing.T) {
	t.Parallel()
	app := &yarnpb.ApplicationId{ClusterTimestamp: new(int64(1795312179758)), Id: new(int32(12))}
	for _, tt := range []struct {
		number  int64
		attempt int32
		want    string
	}{
		{1, 1, "container_1795312179758_0012_01_000001"},
		{2<<40 | 7, 3, "container_e02_1795312179758_0012_03_000007"},
	} {
		name := ContainerName(&yarnpb.ContainerId{
			Id: &tt.number, AppAttemptId: &yarnpb.ApplicationAttemptId{ApplicationId: app, AttemptId: &tt.attempt},
		})
		if name != tt.want {
			t.Errorf("%s, want %s", name, tt.want)
		}
		if id, attempt, err := ParseContainer(name); err != nil || attempt != tt.attempt || !proto.Equal(id, app) {
			t.Errorf("%s is parsed as %v, attempt %d: %v", name, id, attempt, err)
		}
	}
}

func FuzzParseContainer(f *testing.F) {
	for _, s := range []string{"container_1_2_3_4", "container_e5_1_2_3_4", "container_e_1", "x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, attempt, err := ParseContainer(name); err == nil && (id == nil || attempt < 1) {
			t.Errorf("%q is parsed as %v, %d", name, id, attempt)
		}
	})
}
