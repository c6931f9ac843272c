package yarn_test

import (
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// scalars is a program that writes an event file in TensorFlow's format.
const scalars = `
import tfcluster
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
w = EventFileWriter(tfcluster.context().log_dir)
w.add_event(Event(wall_time=1.0, step=7, summary=Summary(value=[Summary.Value(tag="loss", simple_value=0.25)])))
w.close()
`

// proxyURL returns the URL of a cluster's page behind the ResourceManager's proxy.
func proxyURL(t *testing.T, h *hadooptest.Cluster, c *clustertest.Cluster) *url.URL {
	t.Helper()
	shown, err := url.Parse(report(t, h, c).GetTrackingUrl())
	if err != nil {
		t.Fatal(err)
	}
	shown.Host = net.JoinHostPort(h.Host, shown.Port()) // the URL has the host's name, which other Hadoops share
	return shown
}

// showsTensorBoard: TensorBoard works through the ResourceManager's proxy, which forwards only GET.
func showsTensorBoard(t *testing.T, h *hadooptest.Cluster) {
	c := managed(t, h).Start(t, "worker=1", func(r *clusterpb.ReserveRequest) {
		r.Engine = engineOptions(h, "managed", "true", "tensorboard", "true")
	})
	if st := c.Script(scalars).Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	page := proxyURL(t, h, c)
	if code, body := get(t, page.String(), h.Host); code != http.StatusOK ||
		!strings.Contains(body, `<a href="tensorboard/">TensorBoard</a>`) {
		t.Errorf("the page (%d) has no link to TensorBoard:\n%s", code, body)
	}
	at := func(rest string) string { return page.JoinPath("tensorboard/").String() + rest }
	shows := func(ask, want string) {
		t.Helper()
		var code int
		var body string
		clustertest.WaitFor(t, want+" from "+ask, func() bool {
			code, body = get(t, at(ask), h.Host)
			return code == http.StatusOK && strings.Contains(body, want)
		})
		if !strings.Contains(body, want) {
			t.Errorf("%s returns %d:\n%.2000s", ask, code, body)
		}
	}
	shows("", `<script src="tfcluster-getonly.js">`)
	shows("tfcluster-getonly.js", "XMLHttpRequest")
	shows("index.js", "tb-webapp")
	shows("data/runs", `"run-001/logs"`)
	shows("data/plugin/scalars/tags", `"loss"`)
	shows("data/plugin/scalars/scalars?tag=loss&run=run-001/logs", "[1.0, 7, 0.25]")
	safe := base64.RawURLEncoding.EncodeToString // as tfcluster-getonly.js encodes it
	form, kind := safe([]byte("tag=loss&runs=run-001%2Flogs")),
		safe([]byte("application/x-www-form-urlencoded;charset=UTF-8"))
	shows("data/plugin/scalars/scalars_multirun?tfcluster-body="+form+"&tfcluster-type="+kind, "[1.0, 7, 0.25]")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at("data/plugin/scalars/scalars_multirun"),
		strings.NewReader("tag=loss&runs=run-001%2Flogs"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode < 400 {
		t.Errorf("the proxy forwards POST now (%s): tfcluster-getonly.js is no longer needed", answer.Status)
	}
}
