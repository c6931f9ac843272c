package yarn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// managed returns a harness for clusters whose driver is a managed ApplicationMaster.
func managed(t testing.TB, y *hadooptest.Cluster) clustertest.Harness {
	h := harness(t, y)
	h.Reserve.Engine["managed"] = "true"
	h.RemoteResults = true
	return h
}

// TestSmoke: the backend works with a driver in a container.
func TestSmoke(t *testing.T) { clustertest.Smoke(t, managed(t, sharedHadoop(t))) }

// TestManaged: a cluster whose driver runs in a container passes the same suite, survives the death of the
// driver proxy, and leaves nothing behind.
func TestManaged(t *testing.T) {
	h := sharedHadoop(t)
	t.Run("suite", func(t *testing.T) { clustertest.Suite(t, managed(t, h)) })
	t.Run("its page is served through YARN's proxy only", func(t *testing.T) { t.Parallel(); showsPage(t, h) })
	t.Run("TensorBoard through YARN's proxy", func(t *testing.T) { t.Parallel(); showsTensorBoard(t, h) })
	t.Run("a run goes on after the driver proxy's death", func(t *testing.T) { survivesProxyDeath(t, h) })
	t.Run("lines that a killed ApplicationMaster had flushed are kept",
		func(t *testing.T) { t.Parallel(); keepsFlushedLines(t, h) })
	t.Run("event files are copied to this machine", func(t *testing.T) { showsEvents(t, h) })
	t.Run("a browser on this machine reads lines by HTTP", func(t *testing.T) { t.Parallel(); servesLines(t, h) })
	t.Run("a killed application is reported as such", func(t *testing.T) { t.Parallel(); reportsKilled(t, h) })
	t.Run("shipped artifacts",
		func(t *testing.T) { t.Parallel(); clustertest.Shipped(t, managed(t, h), false, h.Environments()) })
	t.Run("the command line returns the program's exit code, and YARN has the run's final status",
		func(t *testing.T) { t.Parallel(); runsBatch(t, h) })
	t.Run("a results folder on this machine is rejected", func(t *testing.T) { refusesFolder(t, h) })
}

func hadoop(t testing.TB, h *hadooptest.Cluster) (conf *hadoopconf.Conf, user string) {
	t.Helper()
	conf, err := hadoopconf.Load(h.Conf)
	if err == nil {
		user, err = hadoopconf.User()
	}
	if err != nil {
		t.Fatal(err)
	}
	return conf, user
}

func openHDFS(t testing.TB, h *hadooptest.Cluster) *hdfs.FS {
	t.Helper()
	conf, user := hadoop(t, h)
	store, err := hdfs.New(hdfs.Config{Conf: conf, User: user})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// report returns YARN's report of a cluster's application.
func report(t testing.TB, h *hadooptest.Cluster, c *clustertest.Cluster) *yarnpb.ApplicationReport {
	t.Helper()
	conf, user := hadoop(t, h)
	client, err := protocol.NewClient(conf, user, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	id, err := protocol.ParseApplication(s.Allocation)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Report(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// get fetches a page from the given local address.
func get(t *testing.T, url, from string) (code int, body string) {
	t.Helper()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

func showsPage(t *testing.T, h *hadooptest.Cluster) {
	c := managed(t, h).Start(t, "worker=2")
	shown := proxyURL(t, h, c)
	code, body := get(t, shown.String(), h.Host)
	for _, want := range []string{"tfcluster " + c.Name, "<td>worker:1</td>", "/node/containerlogs/container_"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("the page (%d) has no %q:\n%s", code, want, body)
		}
	}
	if code, _ := get(t, shown.JoinPath("tensorboard/").String(), h.Host); code != http.StatusNotFound ||
		strings.Contains(body, "TensorBoard</a>") {
		t.Errorf("TensorBoard, which was not requested, returns %d", code)
	}
	if code, body := get(t, report(t, h, c).GetOriginalTrackingUrl(), "127.0.0.77"); code != http.StatusForbidden {
		t.Errorf("a client other than the proxy gets %d:\n%s", code, body)
	}
}

// survivesProxyDeath: a run does not need the driver proxy on this host.
func survivesProxyDeath(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	c := managed(t, h).Start(t, "worker=2")
	r := c.Script(forever)
	r.Line("[worker:1] here")
	before := c.Task("worker:0").GetPid()
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	clustertest.WaitFor(t, "the end of the process on this host", func() bool { return !s.Driver.Alive() })
	client, err := client.Recover(ctx, clustertest.Program(t), c.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Client = client
	if now := c.Task("worker:0"); now.GetPid() != before || now.GetState() != "running" {
		t.Errorf("the task is %v, it was process %d", now, before)
	}
	if _, err := c.Stop(ctx, &clusterpb.StopRequest{}); err != nil {
		t.Error(err)
	}
}

func reportsKilled(t *testing.T, h *hadooptest.Cluster) {
	c := managed(t, h).Launch(t, "worker=1")
	awaitApplication(t, c.Name)
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, h, s.Allocation)
	if f := c.Reserved(); f != nil &&
		(!strings.Contains(f.GetSummary(), "the test ends it") || strings.Contains(f.GetSummary(), "\n")) {
		t.Errorf("the failure is %v", f)
	}
}

func refusesFolder(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	m := managed(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	_, err := client.Launch(ctx, clustertest.Program(t), &clusterpb.ReserveRequest{
		Name: "folder", Backend: "yarn", Dir: t.TempDir(), Engine: maps.Clone(m.Reserve.Engine),
		Roles: []*clusterpb.Role{{Name: "worker", Count: 1}},
	})
	if err == nil || !strings.Contains(err.Error(), "give a folder on hdfs://") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a folder of this machine: %v", err)
	}
	if _, err := state.Load("folder"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its state is left: %v", err)
	}
}

// showsEvents: after TensorBoard was requested, the event files are copied to this machine as they grow.
func showsEvents(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	c := managed(t, h).Start(t, "worker=1")
	r := c.Script(`
import os, time, tfcluster
name = os.path.join(tfcluster.context().log_dir, "events.out.tfevents.1.test")
with open(name, "wb", 0) as f:
    for part in (b"first ", b"second ", b"third"):
        f.write(part)
        print("wrote", part.decode(), flush=True)
        time.sleep(2)
while True: time.sleep(0.05)
`)
	r.Line("[worker:0] wrote first")
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	reply, err := c.TensorBoard(ctx, &clusterpb.TensorBoardRequest{Run: 1})
	if err != nil || !strings.HasPrefix(reply.GetLogdir(), "hdfs://") {
		t.Errorf("TensorBoard answers %v: %v", reply, err)
	}
	dir, err := state.Dir(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the event file", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "logs", "run-001", "logs", "events.out.tfevents.1.test"))
		return err == nil && string(b) == "first second third"
	})
}

// servesLines: the driver proxy serves the lines that the driver in the container has, on a socket of this machine.
func servesLines(t *testing.T, h *hadooptest.Cluster) {
	const each = 20_000
	c := managed(t, h).Start(t, "worker=2")
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	at, err := c.LinesAddress(ctx, &clusterpb.LinesAddressRequest{})
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at.GetSocket())
	}
	base := strings.TrimPrefix(at.GetPath(), "tfcluster")
	if st := c.Script(fmt.Sprintf("for i in range(%d): print('line', i)", each)).Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %v", st)
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jupyter"+base+"lines?run=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := transport.RoundTrip(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Body.Close()
	text, err := io.ReadAll(file.Body)
	if n := strings.Count(string(text), "\n"); err != nil || file.StatusCode != http.StatusOK || n != 2*each {
		t.Errorf("the file: %s, %d lines, %v", file.Status, n, err)
	}
	dialer := websocket.Dialer{HandshakeTimeout: clustertest.Deadline, NetDialContext: dial}
	conn, _, err := dialer.DialContext(ctx, "ws://jupyter"+base+
		"lines/live?run=1", http.Header{"Origin": {"http://jupyter"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n, over := 0, false
	for !over {
		var m struct {
			Lines []json.RawMessage
			Error string
			Over  bool
		}
		if err := errors.Join(conn.SetReadDeadline(time.Now().Add(clustertest.Deadline)), conn.ReadJSON(&m)); err != nil ||
			m.Error != "" {
			t.Fatalf("after %d lines: %q, %v", n, m.Error, err)
		}
		n, over = n+len(m.Lines), m.Over
	}
	if n != 2*each {
		t.Errorf("%d lines came", n)
	}
}

// keepsFlushedLines: the next ApplicationMaster has the lines that a killed one had written to HDFS.
func keepsFlushedLines(t *testing.T, h *hadooptest.Cluster) {
	c := managed(t, h).Start(t, "worker=1")
	r := c.Script("import time\nprint('first', flush=True)\ntime.sleep(600)")
	r.Line("[worker:0] first")
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	store := openHDFS(t, h)
	defer store.Close()
	clustertest.WaitFor(t, "the line on HDFS", func() bool {
		infos, err := store.List(ctx, "tfcluster-runs/"+c.Name+"/run-001/tasks/worker-0")
		return err == nil && len(infos) > 0 && infos[0].Size() > 0
	})
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(int(st.GetDriverPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the next ApplicationMaster", func() bool {
		now, err := c.Status(ctx, &clusterpb.StatusRequest{})
		return err == nil && now.GetState() == "ready" && now.GetDriverPid() != st.GetDriverPid()
	})
	before := c.Run(1)
	if st := before.Wait(); st.GetState() != "failed" || !strings.Contains(before.Text(), "[worker:0] first") {
		t.Errorf("run 1 is %v, its lines:\n%s", st, before.Text())
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" || st.GetId() != 2 {
		t.Errorf("the next run is %v", st)
	}
}
