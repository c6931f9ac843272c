package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// onHDFS is a harness whose clusters write their results to a folder on a real HDFS.
type onHDFS struct {
	clustertest.Harness
	*hadooptest.Cluster
	*hdfs.FS
}

func (h onHDFS) dir(name string) string { return fmt.Sprintf("hdfs://%s:8020/%s", h.Host, name) }

// dirOption sets a cluster's directory.
func (h onHDFS) dirOption(name string) func(*clusterpb.ReserveRequest) {
	return func(r *clusterpb.ReserveRequest) { r.Dir = h.dir(name) }
}

// checkFiles fails the test if a folder does not have exactly these entries, or if a file is empty.
func (h onHDFS) checkFiles(t *testing.T, folder string, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	infos, err := h.List(ctx, h.dir(folder))
	if err != nil {
		t.Error(err)
		return
	}
	var found []string
	for _, info := range infos {
		if found = append(found, info.Name()); !info.IsDir() && info.Size() == 0 {
			t.Errorf("%s/%s is empty", folder, info.Name())
		}
	}
	if fmt.Sprint(found) != fmt.Sprint(names) {
		t.Errorf("%s holds %v, want %v", folder, found, names)
	}
}

func (h onHDFS) text(t *testing.T, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	b, err := h.Read(ctx, h.dir(name))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// shutDown shuts a cluster down and waits for its driver's end.
func shutDown(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	s, err := c.Client.Shutdown(ctx, &clusterpb.ShutdownRequest{Force: true, Reason: "over"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.Recv()
	if err != nil || u.GetText() != "" || !u.GetDone() {
		t.Errorf("the shutdown returns %v: %v", u, err)
	}
	dir, err := state.Dir(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the driver's end",
		func() bool { _, err := os.Stat(dir); return errors.Is(err, fs.ErrNotExist) })
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".spool-*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left on the driver's host: %v %v", left, err)
	}
}

// TestHDFS: the results' directory is on HDFS, which only the driver can reach.
func TestHDFS(t *testing.T) {
	t.Parallel()
	c := hadooptest.Start(t, hadooptest.Options{HDFS: true})
	conf, err := hadoopconf.Load(c.Conf)
	if err != nil {
		t.Fatal(err)
	}
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	f, err := hdfs.New(hdfs.Config{Conf: conf, User: user})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := onHDFS{harness(t), c, f}
	for _, tt := range []struct {
		name string
		test func(*testing.T, onHDFS)
	}{
		{"a run is resumed by another cluster", hdfsResumed},
		{"local_copy", hdfsCopied},
		{"rejected directories", hdfsRefused},
		{"the driver dies", hdfsDriverDies},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, h) })
	}
}

// hdfsResumed: a NameNode is killed and restarted during a run. All files are complete at the end, and
// another cluster resumes the run.
func hdfsResumed(t *testing.T, h onHDFS) {
	work := t.TempDir()
	c := h.Start(t, "worker=2", h.dirOption("user/me/x"))
	r := c.Script(savingProgram+`
events = pathlib.Path(ctx.log_dir, f"events.out.tfevents.1.{ctx.task_index}")
def log(text):
    with events.open("a") as f: f.write(text)
log("before ")
if first: save(1)
print("saved 1", flush=True)
go = pathlib.Path(tfcluster.context().working_dir, "go")
while not go.exists(): time.sleep(0.05)
log("after")
if first:
    save(2)
    save(3)
    pathlib.Path(ctx.export_dir, "saved_model.pb").write_text("model")
print("done", flush=True)
`, func(s *clusterpb.StartRequest) { s.Options.WorkingDir = work })
	r.Line("[worker:0] saved 1")
	if dir := r.Now().GetCheckpointDir(); dir != h.dir("user/me/x/run-001/checkpoints") {
		t.Errorf("the checkpoint directory is %s", dir)
	}
	clustertest.WaitFor(t, "the first checkpoint on HDFS", func() bool {
		_, err := h.Stat(t.Context(), h.dir("user/me/x/run-001/checkpoints/checkpoint"))
		return err == nil
	})
	h.NameNode.Kill()
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Line("[worker:0] done")
	requireFinished(t, r) // although HDFS is unreachable, which is noted
	if !strings.Contains(r.Notes(), "training continues") && !strings.Contains(r.Notes(), "and follows") {
		t.Errorf("notes: %q", r.Notes())
	}
	h.NameNode.Start()
	h.AwaitHDFS()
	shutDown(t, c)
	h.checkFiles(t, "user/me/x/run-001", "checkpoints", "export", "logs", "run-manifest.json", "run.json", "tasks")
	h.checkFiles(t, "user/me/x/run-001/checkpoints", "checkpoint", "ckpt-2.data-00000-of-00001", "ckpt-2.index",
		"ckpt-3.data-00000-of-00001", "ckpt-3.index")
	h.checkFiles(t, "user/me/x/run-001/export", "saved_model.pb")
	h.checkFiles(t, "user/me/x/run-001/tasks", "worker-0", "worker-1")
	for i := range 2 {
		if got := h.text(t, fmt.Sprintf("user/me/x/run-001/logs/events.out.tfevents.1.%d", i)); got != "before after" {
			t.Errorf("the events are %q", got)
		}
	}
	if got := h.text(t, "user/me/x/run-001/tasks/worker-0/000000000000.log"); !strings.HasSuffix(got, " done\n") ||
		!strings.Contains(got, "saved 1\n") {
		t.Errorf("the lines are %q", got)
	}

	c = h.Start(t, "worker=2", h.dirOption("user/me/x/"))
	r = c.Script(savingProgram+`print(ctx.task_index, "has", held(), ctx.resumed, flush=True)`, ownWorkingDir,
		func(s *clusterpb.StartRequest) { s.Options.Resume = "last" })
	requireFinished(t, r)
	if st := r.Now(); st.GetId() != 2 || st.GetResumedFrom() != "run 1 of an earlier cluster" {
		t.Errorf("run %d resumed from %q", st.GetId(), st.GetResumedFrom())
	}
	for i := range 2 {
		want := fmt.Sprintf("%d has ['checkpoint', 'ckpt-2.data-00000-of-00001', 'ckpt-2.index', "+
			"'ckpt-3.data-00000-of-00001', 'ckpt-3.index'] True", i)
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q:\n%s", want, r.Text())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	lines, err := c.Logs(ctx, &clusterpb.LogsRequest{Run: 1})
	if err != nil {
		t.Fatal(err)
	}
	var kept []*clusterpb.Line
	var m *clusterpb.LinesReply
	for m, err = lines.Recv(); err == nil; m, err = lines.Recv() {
		kept = append(kept, m.GetLines()...)
	}
	if !errors.Is(err, io.EOF) || len(kept) != 4 {
		t.Errorf("the lines of the earlier cluster's run: %v %v", kept, err)
	}
	hist, err := c.History(ctx, &clusterpb.HistoryRequest{All: true, Manifests: []int32{1, 2}})
	if err != nil || len(hist.GetRuns()) != 2 || hist.GetRuns()[0].GetState() != "finished" ||
		len(hist.GetManifests()) != 2 || len(hist.GetManifests()[1].GetTasks()) != 2 {
		t.Errorf("history: %v %v", hist, err)
	}
	shutDown(t, c)
	h.checkFiles(t, "user/me/x/run-002/checkpoints", "checkpoint", "ckpt-2.data-00000-of-00001", "ckpt-2.index",
		"ckpt-3.data-00000-of-00001", "ckpt-3.index")
}

// hdfsCopied: ctx.local_copy copies a worker's share of a data set to its own disk, once.
func hdfsCopied(t *testing.T, h onHDFS) {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	for _, name := range []string{"a/part-0", "a/part-1", "b/part-2", "_SUCCESS"} {
		if err := h.Write(ctx, h.dir("data/"+name), strings.NewReader("content of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	c := h.Start(t, "worker=2", h.dirOption("copied"))
	r := c.Script(`
import os, pathlib, tfcluster
ctx = tfcluster.context()
print("default", ctx.defaultFS, flush=True)
for uri in ("/data", ctx.defaultFS + "/data/*/part-[12]"):
    print(ctx.task_index, uri, [pathlib.Path(p).read_text() for p in ctx.local_copy(uri)], flush=True)
first, again = ctx.local_copy("/data", shard=False), ctx.local_copy("/data", shard=False)
print(ctx.task_index, "all", len(first), first == again, flush=True)
try: ctx.local_copy("/nothing/*")
except FileNotFoundError as e: print(ctx.task_index, "raised", e, flush=True)
`, ownWorkingDir)
	requireFinished(t, r)
	root := strings.TrimSuffix(h.dir(""), "/")
	for _, want := range []string{
		"default " + root, "0 /data ['content of a/part-0', 'content of b/part-2']", "1 /data ['content of a/part-1']",
		"0 " + root + "/data/*/part-[12] ['content of a/part-1']", "1 " + root + "/data/*/part-[12] ['content of b/part-2']",
		"0 all 3 True", "1 all 3 True", "0 raised ctx.local_copy: ",
	} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q:\n%s", want, r.Text())
		}
	}
	shutDown(t, c)
}

// hdfsRefused: a directory that cannot be used is reported at once, in one line, and no state is left.
func hdfsRefused(t *testing.T, h onHDFS) {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	if err := h.MakeDir(ctx, h.dir("full")); err != nil {
		t.Fatal(err)
	}
	if out, err := h.Command("org.apache.hadoop.hdfs.tools.DFSAdmin", "-setSpaceQuota", "1000", "/full"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for dir, want := range map[string]string{
		h.dir("full"): "quota of /full is exceeded", "hdfs:///x": "HADOOP_CONF_DIR", "s3://x/y": "not on s3://",
	} {
		begun := time.Now()
		c, err := client.Launch(ctx, clustertest.Program(t), &clusterpb.ReserveRequest{
			Name: "t-refused", Backend: "local", Python: h.Python, Dir: dir,
			Roles: []*clusterpb.Role{{Name: "worker", Count: 1}},
		})
		if err == nil {
			c.Close()
			t.Errorf("--dir %s was accepted", dir)
			continue
		}
		t.Logf("after %s: %v", time.Since(begun).Round(time.Millisecond), err)
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("--dir %s: no %q in one line: %v", dir, want, err)
		}
	}
	if _, err := state.Load("t-refused"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a cluster's state is left: %v", err)
	}
}

// hdfsDriverDies: files that a killed driver had not written to HDFS are written by the next one.
func hdfsDriverDies(t *testing.T, h onHDFS) {
	c := h.Start(t, "worker=1", h.dirOption("dies"))
	r := c.Script(savingProgram+`
save(1)
print("saved 1", flush=True)
time.sleep(600)
`, ownWorkingDir)
	r.Line("[worker:0] saved 1")
	h.NameNode.Kill()
	clustertest.WaitFor(t, "the checkpoint at the driver", func() bool {
		home, err := state.Home()
		if err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(home, ".spool-*", "run-001", "checkpoints", "checkpoint"))
		return err == nil && len(found) > 0
	})
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the driver's end", func() bool { return !s.Driver.Alive() })
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	client, err := client.Recover(ctx, h.Program, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Client = client
	c.Ready()
	h.NameNode.Start()
	r = c.Script(savingProgram+`print("has", held(), flush=True)`, ownWorkingDir,
		func(s *clusterpb.StartRequest) { s.Options.Resume = "last" })
	requireFinished(t, r)
	if !strings.Contains(r.Text(), "has ['checkpoint', 'ckpt-1.data-00000-of-00001', 'ckpt-1.index']") {
		t.Errorf("the lines are:\n%s", r.Text())
	}
	h.AwaitHDFS()
	shutDown(t, c)
	for _, run := range []string{"run-001", "run-002"} {
		h.checkFiles(t, "dies/"+run+"/checkpoints", "checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index")
	}
}
