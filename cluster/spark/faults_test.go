package spark_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
	"github.com/tfcluster/tfcluster/cluster/state"
)

const hello = "print('hello', flush=True)\n"

// forever ends only by a signal; it says when it is there.
const forever = "import time\nprint('here', flush=True)\nwhile True:\n    time.sleep(0.05)\n"

// TestOwnExecutors: the cases about executors where each cluster has a session of its
// own, with executors of one core.
func TestOwnExecutors(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	clustertest.Cases(t, own(t, c), clustertest.Executors)
}

// again runs a program after a fault: start works in the same cluster.
func again(t *testing.T, cl *clustertest.Cluster) {
	t.Helper()
	r, f := cl.TryScript(hello)
	if f != nil {
		t.Fatalf("the next start: %v", f)
	}
	if st := r.Wait(); st.GetState() != "finished" {
		t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
	}
}

// TestKilled: what dies below a running program is the cause of its failure, and the
// next start goes on.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	for _, fault := range []struct {
		name string
		kill func(t *testing.T, cl *clustertest.Cluster)
		want string // in the failure's summary
	}{
		{"an executor", func(t *testing.T, cl *clustertest.Cluster) {
			kill(t, c.Executors(application(t, cl))[0].PID)
		}, "the Spark executor ended"},
		{"the session's process", func(t *testing.T, cl *clustertest.Cluster) {
			kill(t, sessionOf(t, cl).PID)
		}, "the Spark session"}, // is over; or its process is gone, where an executor has seen that first
		{"the application in the master's page", func(t *testing.T, cl *clustertest.Cluster) {
			killApplication(t, c, application(t, cl))
		}, "ended"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			cl := own(t, c).Start(t, "worker=2")
			r := cl.Script(forever)
			r.Line("[worker:1] here")
			fault.kill(t, cl)
			st := r.Wait()
			if f := st.GetFailure(); st.GetState() != "failed" || f.GetKind() != "lost" ||
				!strings.Contains(f.GetSummary(), fault.want) {
				t.Errorf("the run is %s: %v", st.GetState(), f)
			}
			again(t, cl)
		})
	}
}

var csrfToken = regexp.MustCompile(`name="csrfToken" value="([^"]+)"`)

// killApplication does what the link (kill) in the master's page does.
func killApplication(t *testing.T, c *sparktest.Cluster, id string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Jar: jar, Timeout: clustertest.Deadline}
	defer client.CloseIdleConnections()
	page, err := client.Get(c.UI)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"id": {id}, "terminate": {"true"}}
	if token := csrfToken.FindSubmatch(text); token != nil { // from Spark 4 on
		form.Set("csrfToken", string(token[1]))
	}
	r, err := client.PostForm(c.UI+"/app/kill/", form)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("kill application %s: %s", id, r.Status)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// TestWorkerDaemonKilled: the executors of a worker daemon end with it; others come
// where there is room.
func TestWorkerDaemonKilled(t *testing.T) {
	t.Parallel()
	c := sparktest.Start(t, sparktest.Options{Cores: 2})
	cl := own(t, c).Start(t, "worker=2")
	r := cl.Script(forever)
	r.Line("[worker:1] here")
	c.KillWorker(0)
	if st := r.Wait(); st.GetState() != "failed" || st.GetFailure().GetKind() != "lost" {
		t.Errorf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	again(t, cl)
}

// TestTooFew: two executors where three were asked for are said while waiting, and
// all is given back at the timeout.
func TestTooFew(t *testing.T) {
	t.Parallel()
	c := sparktest.Start(t, sparktest.Options{Cores: 1})
	reserve := func(limit time.Duration) *clusterpb.Failure {
		return own(t, c).Launch(t, "worker=3",
			func(r *clusterpb.ReserveRequest) { r.TimeoutMillis = limit.Milliseconds() }).Reserved()
	}
	f := reserve(20 * time.Second)
	if !strings.Contains(f.GetSummary(), "has 2 slots") { // the executors start more slowly on a loaded machine
		f = reserve(3 * time.Minute)
	}
	for _, want := range []string{
		"not reserved within ", "Spark has 2 slots of 3", "2 executors of 1 core on 127.0.0.1", "spark.cores.max",
	} {
		if !strings.Contains(f.GetSummary(), want) {
			t.Errorf("failure %v lacks %q", f, want)
		}
	}
	clustertest.WaitFor(t, "the application's end", func() bool {
		s, err := c.State()
		return err == nil && len(s.Active) == 0
	})
}

// TestRefused: what cannot be is said in one line, with what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	for _, refused := range []struct {
		name   string
		change func(*clusterpb.ReserveRequest)
		want   []string
	}{
		{"no master", func(r *clusterpb.ReserveRequest) { delete(r.Engine, "master") }, []string{
			"which Spark? Give --master",
		}},
		{"no such master", func(r *clusterpb.ReserveRequest) { r.Engine["master"] = "spark://127.0.0.1:1" }, []string{
			"no Spark master answers at spark://127.0.0.1:1", "refused",
		}},
		{"dynamic allocation", func(r *clusterpb.ReserveRequest) {
			r.Engine["conf.spark.dynamicAllocation.enabled"] = "true"
		}, []string{"leave it out"}},
		{"no such Python", func(r *clusterpb.ReserveRequest) { r.Python = "/no/such/python" }, []string{
			"start a Spark session with /no/such/python", "no such file",
		}},
		{"a Python without pyspark", func(r *clusterpb.ReserveRequest) { r.Python = "/usr/bin/python3" }, []string{
			"no pyspark", "--python",
		}},
		{"a driver out of reach", func(r *clusterpb.ReserveRequest) { r.Advertise = "nowhere.invalid" }, []string{
			"cannot reach the driver at nowhere.invalid:", "--advertise",
		}},
	} {
		t.Run(refused.name, func(t *testing.T) {
			t.Parallel()
			if refused.name == "a driver out of reach" {
				refused.change = also(refused.change,
					func(r *clusterpb.ReserveRequest) { r.Engine["conf.spark.driver.host"] = "127.0.0.1" })
			}
			f := own(t, c).Launch(t, "worker=1", copied, refused.change).Reserved()
			for _, want := range refused.want {
				if !strings.Contains(f.GetSummary(), want) {
					t.Errorf("failure %v lacks %q", f, want)
				}
			}
			if strings.Contains(f.GetSummary(), "\n") {
				t.Errorf("more than one line: %q", f.GetSummary())
			}
		})
	}
}

// copied makes a request's engine options its own.
func copied(r *clusterpb.ReserveRequest) {
	r.Engine = maps.Clone(r.GetEngine())
}

func also(changes ...func(*clusterpb.ReserveRequest)) func(*clusterpb.ReserveRequest) {
	return func(r *clusterpb.ReserveRequest) {
		for _, f := range changes {
			f(r)
		}
	}
}

// TestSessionStopped: a cluster on the notebook's session ends with it, and says so.
func TestSessionStopped(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	s := startNotebook(t, c, append(many(t, c), "spark.executor.cores=1", "spark.cores.max=2")...)
	cl := s.lent(c).Start(t, "worker=2")
	r := cl.Script(forever)
	r.Line("[worker:1] here")
	s.say("stop")
	f := r.Wait().GetFailure()
	if f.GetKind() != "lost" {
		t.Errorf("failure is %v", f)
	}
	s.hear("stopped")
	clustertest.WaitFor(t, "the cluster's end", func() bool {
		_, err := state.Load(cl.Name)
		return err != nil
	})
}

// savedState is what a cluster's state file holds of its session.
type savedState struct {
	Application string        `json:"application"`
	Session     state.Process `json:"session"`
}

func stateOf(t *testing.T, cl *clustertest.Cluster) savedState {
	t.Helper()
	s, err := state.Load(cl.Name)
	if err != nil {
		t.Fatal(err)
	}
	var saved savedState
	if err := json.Unmarshal(s.Saved, &saved); err != nil {
		t.Fatal(err)
	}
	return saved
}

func application(t *testing.T, cl *clustertest.Cluster) string {
	t.Helper()
	return stateOf(t, cl).Application
}

func sessionOf(t *testing.T, cl *clustertest.Cluster) state.Process {
	t.Helper()
	return stateOf(t, cl).Session
}
