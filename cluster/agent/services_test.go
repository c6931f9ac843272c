package agent

import (
	"errors"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// TestServiceAfterTheEnd: a program that is killed right after it asked for a service does not begin it: the others of
// its group would wait for a task that has ended.
func TestServiceAfterTheEnd(t *testing.T) {
	t.Parallel()
	began := 0
	s := taskService{start: func() (service, error) { began++; return nil, errors.New("for the test") }}
	s.open(&task{}, "group")
	if began != 1 {
		t.Errorf("it was begun %d times", began)
	}
	s.programEnded()
	s.open(&task{}, "group")
	if began != 1 {
		t.Error("it was begun after the program's end")
	}
}

// TestHosts: the setting of tests makes hosts of one, in turn; without it all tasks of a machine are of one host.
func TestHosts(t *testing.T) {
	if sameHost("worker:0") != sameHost("worker:1") {
		t.Error("two tasks are on two hosts")
	}
	t.Setenv(testHosts, "2")
	if sameHost("worker:0") == sameHost("worker:1") || sameHost("worker:0") != sameHost("worker:2") {
		t.Errorf("the hosts are %q, %q, %q", sameHost("worker:0"), sameHost("worker:1"), sameHost("worker:2"))
	}
}

// TestVerbsOf: a site's settings of a port are used, the others are those of package transport.
func TestVerbsOf(t *testing.T) {
	t.Parallel()
	if got := verbsOf(nil); got != nil {
		t.Errorf("without a port: %+v", got)
	}
	want := transport.DefaultVerbs("mlx5_0", 2, 3)
	if got := verbsOf(&clusterpb.CollectivePort{Device: "mlx5_0", Port: 2, Gid: 3}); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	want.Timeout, want.Retries, want.TrafficClass, want.ServiceLevel = 22, 0, 106, 3
	got := verbsOf(&clusterpb.CollectivePort{
		Device: "mlx5_0", Port: 2, Gid: 3, Timeout: new(int32(22)), Retries: new(int32(0)), TrafficClass: new(int32(106)),
		ServiceLevel: new(int32(3)),
	})
	if *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
}
