package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// TestFate: the meaning of a failed call follows from its error, the state folder and the history, and each meaning
// names a next step.
func TestFate(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	until := since.Add(4*time.Minute + 5*time.Second)
	eof := status.Error(codes.Unavailable, "error reading from server: EOF")
	dial := fmt.Errorf("connect to cluster c: %w", status.Error(codes.Unavailable,
		`connection error: desc = "transport: Error while dialing: dial unix /c.sock: connect: no such file or directory"`))
	late := status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	live := &ClusterInfo{Name: "c", Backend: "local", Live: true, PID: 7, Since: since}
	stopped := &ClusterInfo{Name: "c", Backend: "local", Live: true, PID: 7, Stopped: true, Since: since}
	dead := &ClusterInfo{Name: "c", Backend: "spark", Since: since}
	hosted := &ClusterInfo{Name: "c", Backend: "yarn", Live: true, Hosted: true, PID: 7, Since: since}
	alone := &ClusterInfo{Name: "c", Backend: "yarn", Hosted: true, Since: since}
	lives := &state.ClusterRecord{Name: "c", Since: since}
	over := &state.ClusterRecord{Name: "c", Since: since, Until: until, Why: "the SparkSession was stopped"}
	older := &state.ClusterRecord{Name: "c", Since: since.Add(-time.Hour), Until: since.Add(-time.Minute)}
	const (
		isOver = "cluster c is over since 2026-01-02 03:04:05: the SparkSession was stopped; " +
			"%tfcluster reserve makes another, %tfcluster logs -c c shows its lines"
		isDead   = "the driver of cluster c died; %tfcluster attach c or %tfcluster reset -c c starts another one"
		isSilent = "the driver of cluster c, process 7, does not answer; %tfcluster reset -c c ends it and starts another " +
			"one, %tfcluster shutdown --force -c c releases the cluster"
		again = "the driver of cluster c ended, and YARN starts it again; repeat the command"
	)
	for _, tt := range []struct {
		name string
		c    Connection
		fate Fate
		text string
	}{
		{
			"the driver refuses",
			Connection{Err: status.Error(codes.FailedPrecondition, "run 1 is active"), Info: live, Record: lives},
			Refused, "run 1 is active",
		},
		{
			"the driver cannot",
			Connection{Err: status.Error(codes.Unavailable, "the lines of run 1: HDFS is away"), Info: live, Record: lives},
			Refused, "the lines of run 1: HDFS is away",
		},
		{"an earlier cluster of this name is over", Connection{
			Err: status.Error(codes.Unavailable, "no"), Info: live, Record: older,
		}, Refused, "no"},
		{"driver killed", Connection{Err: eof, Info: dead, Record: lives}, Dead, isDead},
		{"driver killed, dialed", Connection{Err: fmt.Errorf("cluster c: %w", client.ErrNoDriver), Info: dead}, Dead, isDead},
		{"its state was removed by hand", Connection{
			Err:    eof,
			Record: lives,
		}, Unknown, "there is no cluster c; %tfcluster reserve makes one"},
		{"released", Connection{Err: eof, Record: over}, Over, isOver},
		{"released, dialed", Connection{Err: fmt.Errorf("read the state: %w", os.ErrNotExist), Record: over}, Over, isOver},
		{"released, its own words", Connection{
			Err:    status.Error(codes.Unavailable, "the cluster is over"),
			Record: over,
		}, Over, isOver},
		{"the reservation failed", Connection{Err: dial, Record: over}, Over, isOver},
		{"managed, application ended", Connection{
			Err: status.Error(codes.Unavailable, "application_1 is failed"), Info: hosted, Record: over,
		}, Over, isOver},
		{"managed, ApplicationMaster killed", Connection{Err: eof, Info: hosted, Record: lives}, Restarting, again},
		{"managed, ApplicationMaster awaited", Connection{
			Err: status.Error(codes.Aborted, "starts"), Info: hosted, Record: lives,
		}, Restarting, again},
		{"managed, proxy killed", Connection{Err: eof, Info: alone, Record: lives}, Restarting, again},
		{"driver hangs", Connection{Err: late, Info: live, Record: lives}, Silent, isSilent},
		{"proxy hangs", Connection{Err: late, Info: hosted, Record: lives}, Silent, isSilent},
		{"driver hangs, dialed", Connection{Err: fmt.Errorf("connect to cluster c: %w", late), Info: live}, Silent, isSilent},
		{
			"driver stopped", Connection{Err: late, Info: stopped}, Silent, "the driver of cluster c, process 7, " +
				"does not answer: it is stopped (SIGSTOP or a debugger); kill -CONT 7 continues it, " +
				"%tfcluster reset -c c ends it and starts another one, %tfcluster shutdown --force -c c releases the cluster",
		},
		{"never heard of", Connection{Err: os.ErrNotExist}, Unknown, "there is no cluster c; %tfcluster reserve makes one"},
		{
			"of another machine", Connection{Err: os.ErrNotExist, Cluster: "application_1_2"}, Unknown, "there is no cluster " +
				"application_1_2 on this machine; run the command on the machine that submitted it, which has the cluster's keys",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.c.Cluster = cmp.Or(tt.c.Cluster, "c")
			if got := tt.c.Fate(); got != tt.fate {
				t.Errorf("it means %s, want %s", got, tt.fate)
			}
			err := tt.c.explain(func(words string) string { return "%tfcluster " + words }, "%tfcluster reserve")
			if err.Error() != tt.text {
				t.Errorf("it says\n%s\nwant\n%s", err, tt.text)
			}
			if got := FateOf(fmt.Errorf("stop the run: %w", err)); got != tt.fate {
				t.Errorf("FateOf returns %s", got)
			}
		})
	}
	if FateOf(errors.New("x")) != Refused {
		t.Error("an error of something else has a fate")
	}
}
