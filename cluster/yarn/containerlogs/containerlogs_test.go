package containerlogs

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/aggregated"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// TestMarks: the mark names the container's executor.
func TestMarks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, heading, label string
	}{
		{
			"Setting up env variables\n" + AgentMark(cluster.TaskID{Role: "my-role", Index: 12}, 3) +
				"\n", "my-role:12, attempt 3: container_1 on n:1, stderr", "agent of my-role:12",
		},
		{"Launching container\n" + DriverMark + "\n", "the cluster's driver: container_1 on n:1, stderr", "driver"},
		{"Launching container\n", "container_1 on n:1, stderr", "container_1"},
		{markPrefix + "of nobody attempt x\n", "container_1 on n:1, stderr", "container_1"},
		{markPrefix + "of $(reboot):1 attempt 1\n", "container_1 on n:1, stderr", "container_1"},
	} {
		o := readMark(tt.text)
		if h, l := o.heading("container_1", "n:1", "stderr"), o.label("container_1"); h != tt.heading || l != tt.label {
			t.Errorf("%q is %q, %q", tt.text, h, l)
		}
	}
	o := owner{task: "worker:1"}
	for query, want := range map[string]bool{
		"": true, "worker": true, "worker:1": true, "container_7": true, "worker:11": false, "work": false, "ps": false,
		"container_8": false,
	} {
		if got := o.matches(query, "container_7"); got != want {
			t.Errorf("%q matches: %v", query, got)
		}
	}
}

// stderrDiagnostics are those of a NodeManager 3.3.6 for a process that exited with code 97.
const stderrDiagnostics = `[2026-11-21 22:00:00.123]Exception from container-launch.
Container id: container_1_0001_01_000002
Exit code: 97

[2026-11-21 22:00:00.125]Container exited with a non-zero exit code 97. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
time=2026-11-21T22:00:00 level=INFO msg=begins
tfcluster agent: cannot dial the cluster's driver at 10.0.0.9:4711: connection refused


[2026-11-21 22:00:00.126]Container exited with a non-zero exit code 97. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
`

func TestLastLines(t *testing.T) {
	t.Parallel()
	const prelaunch = "[2026-11-21 22:00:00.125]Container exited with a non-zero exit code 1. Error file: " +
		"prelaunch.err.\nLast 4096 bytes of prelaunch.err :\nln: no room\n  and more\n\n"
	for _, tt := range []struct{ diagnostics, want string }{
		{
			stderrDiagnostics, "time=2026-11-21T22:00:00 level=INFO msg=begins|tfcluster agent: " +
				"cannot dial the cluster's driver at 10.0.0.9:4711: connection refused",
		},
		{
			stderrDiagnostics + stderrDiagnostics, "time=2026-11-21T22:00:00 level=INFO msg=begins|tfcluster agent: " +
				"cannot dial the cluster's driver at 10.0.0.9:4711: connection refused",
		},
		{prelaunch, "ln: no room|  and more"},
		{prelaunch + "Last 4096 bytes of stderr :\nTraceback:\n  line 1\n", "Traceback:|  line 1"},
		{"Container released by application", ""},
	} {
		if got := strings.Join(LastLines(tt.diagnostics), "|"); got != tt.want {
			t.Errorf("%q", got)
		}
	}
	many := "Last 4096 bytes of stderr :\n" + strings.Repeat("x\n", 100) + "last\n"
	if got := LastLines(many); len(got) != maxLines || got[maxLines-1] != "last" {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

func TestNodeText(t *testing.T) {
	t.Parallel()
	const head = "Container: container_1_0001_01_000002 on n7:8041\nLogAggregationType: LOCAL\n=====\nLogType:stderr\n" +
		"LogLastModifiedTime:Sun Nov 22\nLogLength:%d\nLogContents:\n"
	const foot = "End of LogType:stderr.\n*********\n\n"
	for _, tt := range []struct {
		answer, want string
		length       int64
		fails        bool
	}{
		{fmt.Sprintf(head, 8) + "one\ntwo\n" + foot, "one\ntwo\n" + foot, 8, false},
		{foot, "", 0, false},
		{"", "", 0, false},
		{"Container: and no more", "", 0, true},
		{"Container: " + strings.Repeat("x", 1<<20) + "\nLogContents:\n", "", 0, true},
		{strings.Replace(head, "%d", "x", 1), "", 0, true},
	} {
		text, length, err := nodeText(strings.NewReader(tt.answer))
		var got []byte
		if err == nil {
			got, err = io.ReadAll(text)
		}
		if (err != nil) != tt.fails || string(got) != tt.want || length != tt.length {
			t.Errorf("%q gives %q, %d: %v", tt.answer, got, length, err)
		}
	}
}

// TestStalledNode: a node that stops sending in the middle of a response is skipped.
func TestStalledNode(t *testing.T) {
	t.Parallel()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "Container: container_1_0001_01_000002 on n7:8041\nLogLength:80\nLogContents:\none\n")
		_ = http.NewResponseController(w).Flush() // the client may have closed the connection
		<-r.Context().Done()
	}))
	defer node.Close()
	r := &logReader{
		web: node.Client(), seen: map[string]bool{}, emit: func(string, []*clusterpb.Line) error { return nil },
	}
	at := Location{Container: "container_1_0001_01_000002", Web: strings.TrimPrefix(node.URL, "http://")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if answered, err := r.fromNode(ctx, at, &owner{}, "stderr"); !answered || err == nil || ctx.Err() != nil {
		t.Errorf("answered is %v: %v", answered, err)
	}
}

// TestLogLines: emitLog emits the last lines of a log, or all in batches.
func TestLogLines(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 3 * batchLines {
		fmt.Fprintf(&text, "line %d\r\n", i)
	}
	text.WriteString("\xffend")
	for _, tt := range []struct {
		q           cluster.LogQuery
		cut         bool
		n           int
		first, last string
	}{
		{cluster.LogQuery{}, false, 3*batchLines + 1, "line 0", "\uFFFDend"},
		{cluster.LogQuery{}, true, 3 * batchLines, "line 1", "\uFFFDend"},
		{cluster.LogQuery{Last: 2}, false, 2, "line 2999", "\uFFFDend"},
		{cluster.LogQuery{Last: 3, Grep: regexp.MustCompile("line .*7$")}, false, 3, "line 2977", "line 2997"},
		{cluster.LogQuery{Grep: regexp.MustCompile("nothing")}, false, 0, "", ""},
	} {
		var headings []string
		var lines []*clusterpb.Line
		r := &logReader{query: tt.q, emit: func(heading string, ls []*clusterpb.Line) error {
			if heading != "" {
				headings = append(headings, heading)
			}
			lines = append(lines, ls...)
			return nil
		}}
		if err := r.emitLog(owner{task: "worker:1"}, "container_7", "", "stderr", strings.NewReader(text.String()),
			tt.cut); err != nil {
			t.Fatal(err)
		}
		if len(lines) != tt.n || tt.n > 0 && (lines[0].GetText() != tt.first || lines[tt.n-1].GetText() != tt.last ||
			lines[0].GetStream() != clusterpb.Line_STDERR) {
			t.Errorf("%+v: %d lines", tt.q, len(lines))
		}
		if want := min(1, tt.n); len(headings) != want {
			t.Errorf("%+v: the headings are %q", tt.q, headings)
		}
	}
}

func testReader(report *yarnpb.ApplicationReport, conf map[string]string) *logReader {
	id := &yarnpb.ApplicationId{Id: new(int32(12345)), ClusterTimestamp: new(int64(17))}
	return &logReader{site: site.Site{Conf: hadoopconf.New(conf), User: "ann"}, id: id, report: report}
}

func TestLogFolders(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		conf map[string]string
		want []string
	}{
		{nil, []string{
			"/tmp/logs/ann/bucket-logs-tfile/2345/application_17_12345", "/tmp/logs/ann/logs-tfile/application_17_12345",
			"/tmp/logs/ann/logs/application_17_12345",
		}},
		{
			map[string]string{
				"yarn.nodemanager.remote-app-log-dir": "hdfs://n:1/l/", "yarn.nodemanager.remote-app-log-dir-suffix": "s",
			},
			[]string{
				"hdfs://n:1/l/ann/bucket-s-tfile/2345/application_17_12345", "hdfs://n:1/l/ann/s-tfile/application_17_12345",
				"hdfs://n:1/l/ann/s/application_17_12345",
			},
		},
		{
			map[string]string{
				"yarn.log-aggregation.TFile.remote-app-log-dir":        "/t",
				"yarn.log-aggregation.TFile.remote-app-log-dir-suffix": "own",
			},
			[]string{
				"/t/ann/bucket-own/2345/application_17_12345", "/t/ann/own/application_17_12345",
				"/t/ann/logs/application_17_12345",
			},
		},
	} {
		if got := testReader(nil, tt.conf).folders(); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q", tt.conf, got)
		}
	}
	for name, want := range map[string]string{
		"n7_8041": "n7:8041", "my_node_8041_1700000000000": "my_node:8041", "n7_8041.tmp": "", "x": "",
	} {
		got := ""
		if parts := nodeFile.FindStringSubmatch(name); parts != nil {
			got = parts[1] + ":" + parts[2]
		}
		if got != want {
			t.Errorf("%s is of node %q", name, got)
		}
	}
}

// TestNoLogs: the error for missing logs has one line, with advice.
func TestNoLogs(t *testing.T) {
	t.Parallel()
	ended := func(s yarnpb.LogAggregationStatus) *yarnpb.ApplicationReport {
		return &yarnpb.ApplicationReport{
			User: new("bob"), LogAggregationStatus: &s, YarnApplicationState: yarnpb.YarnApplicationState_FINISHED.Enum(),
		}
	}
	missing := fmt.Errorf("list: %w", fs.ErrNotExist)
	for _, tt := range []struct {
		report *yarnpb.ApplicationReport
		silent error
		err    error
		want   string
	}{
		{
			nil, protocol.ErrGone, missing, "YARN does not know that application, and no logs of it are below /tmp/logs on HDFS",
		},
		{nil, protocol.ErrUnreachable, missing, "YARN unreachable"},
		{ended(yarnpb.LogAggregationStatus_LOG_DISABLED), nil, missing, "yarn.log-aggregation-enable=true"},
		{
			ended(yarnpb.LogAggregationStatus_LOG_RUNNING), nil, missing,
			"are not there yet: the nodes upload them to HDFS within seconds",
		},
		{ended(yarnpb.LogAggregationStatus_LOG_RUNNING), nil, nil, "are not there yet: nothing on HDFS matches"},
		{ended(yarnpb.LogAggregationStatus_LOG_FAILED), nil, missing, "could not upload them to /tmp/logs"},
		{ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, missing, "yarn.log-aggregation.retain-seconds"},
		{ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, nil, "contain nothing of worker:7"},
		{
			ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, fmt.Errorf("list /x: %w", fs.ErrPermission),
			"are those of user bob, and this user may not read them",
		},
		{
			ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, fmt.Errorf("/x: %w: compression \"lzo\"",
				aggregated.ErrCompression), "read them with yarn logs -applicationId application_17_12345",
		},
		{
			ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, fmt.Errorf("/x: %w", aggregated.ErrFormat),
			"another format than TFile, the only supported one (yarn.log-aggregation.file-formats)",
		},
		{
			ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, fmt.Errorf("/x: %w: no index", aggregated.ErrCorrupt),
			"a file on HDFS is damaged, and its other lines are lost: /x: the log file is corrupt: no index; " +
				"the files of other nodes were read",
		},
		{ended(yarnpb.LogAggregationStatus_LOG_SUCCEEDED), nil, hdfs.ErrUnreachable, "HDFS unreachable"},
	} {
		r := testReader(tt.report, nil)
		r.reportErr, r.query.Task = tt.silent, "worker:7"
		got := r.explain(tt.err).Error()
		if !strings.HasPrefix(got, "the logs of application_17_12345") || !strings.Contains(got, tt.want) ||
			strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state yarnpb.YarnApplicationState
		final yarnpb.FinalApplicationStatus
		why   string
		want  string
	}{
		{yarnpb.YarnApplicationState_RUNNING, yarnpb.FinalApplicationStatus_APP_UNDEFINED, "", "running"},
		{yarnpb.YarnApplicationState_FINISHED, yarnpb.FinalApplicationStatus_APP_SUCCEEDED, "released", "finished"},
		{
			yarnpb.YarnApplicationState_FINISHED, yarnpb.FinalApplicationStatus_APP_FAILED, "no room\nmore",
			"finished as failed: no room",
		},
		{
			yarnpb.YarnApplicationState_KILLED, yarnpb.FinalApplicationStatus_APP_KILLED, "Application application_17_12345 " +
				"was killed by user ann at 10.0.0.9 with diagnostic message: enough", "killed: by user ann at 10.0.0.9: enough",
		},
	} {
		r := &yarnpb.ApplicationReport{
			ApplicationId: testReader(nil, nil).id, YarnApplicationState: &tt.state, FinalApplicationStatus: &tt.final,
			Diagnostics: &tt.why,
		}
		if got := outcome(r); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
