package containerlogs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/yarn/aggregated"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// History reads what YARN keeps of applications, whether they run or have ended, and whichever cluster they belonged
// to. It implements cluster.EngineHistory.
type History struct{}

// IsApplication reports whether an allocation has the ID of a YARN application.
func (History) IsApplication(name string) bool { return strings.HasPrefix(name, "application_") }

// ReadLogs emits the logs of an application's containers. r names the YARN cluster; locations is the result of
// ApplicationHistory.LogLocations, or nil. emit is called with a heading first, then with lines.
func (History) ReadLogs(ctx context.Context, r *clusterpb.ReserveRequest, locations []byte, q cluster.LogQuery,
	emit func(heading string, lines []*clusterpb.Line) error,
) error {
	s, err := site.Find(r)
	if err != nil {
		return err
	}
	id, err := protocol.ParseApplication(q.Allocation)
	if err != nil {
		return err
	}
	return ReadApplication(ctx, s, id, parseLocations(locations, q.Allocation), q, emit)
}

// logReader reads the logs of one application.
type logReader struct {
	site      site.Site
	id        *yarnpb.ApplicationId
	query     cluster.LogQuery
	emit      func(heading string, lines []*clusterpb.Line) error
	client    *protocol.Client
	web       *http.Client
	report    *yarnpb.ApplicationReport // nil if YARN does not return it
	reportErr error                     // why report is nil
	seen      map[string]bool           // containers whose logs were read
	failures  []nodeFailure             // logs that nodes did not deliver
	emitted   bool                      // some lines
}

// ReadApplication emits the logs of one application: while it runs, first those on the nodes, then those on
// HDFS; after its end those on HDFS, and those on the nodes that are not aggregated yet.
func ReadApplication(ctx context.Context, s site.Site, id *yarnpb.ApplicationId, locations []Location,
	q cluster.LogQuery, emit func(string, []*clusterpb.Line) error,
) error {
	r := &logReader{
		site: s, id: id, query: q, emit: emit, seen: map[string]bool{}, web: &http.Client{CheckRedirect: noRedirect},
	}
	defer r.web.CloseIdleConnections()
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	r.client = client
	limited, cancel := context.WithTimeout(ctx, 2*site.ReachLimit)
	r.report, r.reportErr = client.Report(limited, id)
	cancel()
	if r.reportErr != nil {
		r.report = nil
	}
	running := r.report != nil && !protocol.Ended(r.report.GetYarnApplicationState())
	if running {
		if err := r.fromNodes(ctx, r.runningContainers(ctx, locations)); err != nil {
			return err
		}
	}
	err = r.fromHDFS(ctx)
	if _, ours := errors.AsType[emitError](err); ours || ctx.Err() != nil {
		return err
	}
	if !running && r.aggregating() {
		if err := r.fromNodes(ctx, locations); err != nil {
			return err
		}
	}
	return r.conclude(running, err)
}

// conclude returns the error of a reader that has read what it could, or emits why logs are missing after others.
// err is that of HDFS.
func (r *logReader) conclude(running bool, err error) error {
	absent := errors.Is(err, fs.ErrNotExist)
	missing := r.nodeError()
	if missing == nil && !absent {
		missing = err
	}
	switch {
	case missing != nil && r.emitted && (running || err == nil || absent):
		if err := r.emit(fmt.Sprintf("the rest of the logs of %s could not be read: %v", protocol.ApplicationName(r.id),
			missing), nil); err != nil {
			return emitError{err}
		}
		return nil
	case missing != nil && running:
		return r.explain(missing)
	case len(r.seen) > 0 && (err == nil || absent), running && absent:
		return nil // a running application may have no logs yet
	}
	return r.explain(err)
}

// noRedirect makes the client return a node's redirect to another server instead of following it.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// emitError is an error of emit, after which nothing else is tried.
type emitError struct{ error }

func (e emitError) Unwrap() error { return e.error }

// runningContainers adds the containers that YARN reports to the known ones.
func (r *logReader) runningContainers(ctx context.Context, locations []Location) []Location {
	ctx, cancel := context.WithTimeout(ctx, site.ReachLimit)
	defer cancel()
	found, err := r.client.Containers(ctx, r.report.GetCurrentApplicationAttemptId())
	if err != nil {
		return locations
	}
	have := map[string]bool{}
	for _, p := range locations {
		have[p.Container] = true
	}
	for _, c := range found {
		if name := protocol.ContainerName(c.GetContainerId()); !have[name] {
			web := c.GetNodeHttpAddress()
			if _, after, ok := strings.Cut(web, "://"); ok {
				web = after
			}
			locations = append(locations, Location{Container: name, Node: protocol.NodeName(c.GetNodeId()), Web: web})
		}
	}
	return locations
}

// aggregating reports whether the nodes of an ended application may still have logs that are not on HDFS.
func (r *logReader) aggregating() bool {
	switch r.report.GetLogAggregationStatus() {
	case yarnpb.LogAggregationStatus_LOG_NOT_START, yarnpb.LogAggregationStatus_LOG_RUNNING,
		yarnpb.LogAggregationStatus_LOG_RUNNING_WITH_FAILURE:
		return r.report != nil
	}
	return false
}

// nothingError says that logs can be read and do not have what was asked for. It is fs.ErrNotExist.
type nothingError struct{ error }

func (nothingError) Is(target error) bool { return target == fs.ErrNotExist }

func nothing(format string, a ...any) error { return nothingError{fmt.Errorf(format, a...)} }

// explain returns an error of one line that explains why there are no logs.
func (r *logReader) explain(err error) error {
	name := protocol.ApplicationName(r.id)
	prefix := "the logs of " + name
	status := r.report.GetLogAggregationStatus()
	switch {
	case errors.Is(err, aggregated.ErrFormat):
		return fmt.Errorf("%s are in another format than TFile, the only supported one (yarn.log-aggregation.file-formats): "+
			"%w; read them with yarn logs -applicationId %s", prefix, err, name)
	case errors.Is(err, aggregated.ErrCompression), errors.Is(err, hdfs.ErrNotHDFS):
		return fmt.Errorf("%s: %w; read them with yarn logs -applicationId %s", prefix, err, name)
	case errors.Is(err, aggregated.ErrCorrupt):
		return fmt.Errorf(
			"%s: a file on HDFS is damaged, and its other lines are lost: %w; the files of other nodes were read", prefix, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s are those of user %s, and this user may not read them: %w", prefix, r.user(), err)
	case err == nil && r.aggregating():
		return nothing("%s are not there yet: nothing on HDFS matches, and some nodes have not uploaded their logs; "+
			"try again in a moment", prefix)
	case err == nil && r.query.Task != "":
		return nothing("%s contain nothing of %s: leave --task out to see which containers and files they have", prefix,
			r.query.Task)
	case err == nil:
		return nothing("%s are empty: none of its containers wrote anything", prefix)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", prefix, err)
	case errors.Is(r.reportErr, protocol.ErrGone):
		return fmt.Errorf("%s: YARN does not know that application, and no logs of it are below %s on HDFS: "+
			"check that it is an application of this YARN cluster (HADOOP_CONF_DIR) and of user %s", prefix, r.root(), r.user())
	case r.reportErr != nil:
		return fmt.Errorf("%s: none are below %s on HDFS, and YARN cannot be asked for more: %w", prefix, r.root(),
			r.reportErr)
	case status == yarnpb.LogAggregationStatus_LOG_DISABLED:
		return fmt.Errorf("%s are gone: this YARN cluster keeps no logs of ended applications; "+
			"its administrator can change that with yarn.log-aggregation-enable=true", prefix)
	case r.aggregating():
		return fmt.Errorf(
			"%s are not there yet: the nodes upload them to HDFS within seconds of its end; try again in a moment", prefix)
	case status == yarnpb.LogAggregationStatus_LOG_FAILED, status == yarnpb.LogAggregationStatus_LOG_TIME_OUT:
		return fmt.Errorf("%s are gone: its nodes could not upload them to %s on HDFS; see the NodeManagers' own logs",
			prefix, r.root())
	}
	return fmt.Errorf("%s are not below %s on HDFS: none of its containers wrote anything, "+
		"or they were removed (yarn.log-aggregation.retain-seconds)", prefix, r.root())
}

// user returns the application's user.
func (r *logReader) user() string { return cmp.Or(r.report.GetUser(), r.site.User) }

// Bounds of the part of a log that is read for its last lines, in bytes.
const (
	minTailBytes = 256 << 10
	lineBytes    = 1 << 10 // for each requested line
	maxLineBytes = 64 << 10
	batchLines   = 1000 // lines per call of emit
)

// tailBytes returns how many bytes of a log's end contain the requested lines; 0 means all.
func (r *logReader) tailBytes() int64 {
	if r.query.Last <= 0 || r.query.Grep != nil {
		return 0
	}
	return max(minTailBytes, int64(r.query.Last)*lineBytes)
}

// emitLog emits the lines of one log. cut reports that text starts in the middle of a line.
func (r *logReader) emitLog(o owner, container, node, name string, text io.Reader, cut bool) error {
	heading := o.heading(container, node, name)
	stream := clusterpb.Line_STDOUT
	if name == "stderr" || strings.HasSuffix(name, ".err") {
		stream = clusterpb.Line_STDERR
	}
	var lines []*clusterpb.Line
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		if err := r.emit(heading, lines); err != nil {
			return emitError{err}
		}
		heading, lines, r.emitted = "", nil, true
		return nil
	}
	in := bufio.NewReaderSize(text, maxLineBytes)
	if cut {
		if _, err := in.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
	}
	var failed error
	for failed == nil {
		raw, err := in.ReadSlice('\n')
		if line := strings.TrimRight(string(raw), "\r\n"); len(raw) > 0 &&
			(r.query.Grep == nil || r.query.Grep.MatchString(line)) {
			lines = append(lines,
				&clusterpb.Line{Stream: stream, Task: o.label(container), Text: strings.ToValidUTF8(line, "\uFFFD")})
		}
		switch last := r.query.Last; {
		case last > 0 && len(lines) > last+batchLines:
			lines = append(lines[:0], lines[len(lines)-last:]...)
		case last <= 0 && len(lines) >= batchLines:
			if err := flush(); err != nil {
				return err
			}
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			failed = err
		}
	}
	if last := r.query.Last; last > 0 {
		lines = lines[max(0, len(lines)-last):]
	}
	if err := flush(); err != nil || errors.Is(failed, io.EOF) {
		return err
	}
	return failed
}
