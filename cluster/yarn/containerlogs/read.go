package containerlogs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/aggregated"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Read gives what the containers of an application wrote, whether it lives or not, and
// whoever it is of. r says which YARN is meant; places is what ApplicationHistory's LogLocations gave,
// or nil. emit is called in turn with a heading, or with lines.
func Read(ctx context.Context, r *clusterpb.ReserveRequest, places []byte, q cluster.LogQuery, emit func(heading string, lines []*clusterpb.Line) error) error {
	s, err := site.Find(r)
	if err != nil {
		return err
	}
	id, err := protocol.ParseApplication(q.Allocation)
	if err != nil {
		return err
	}
	return ReadApplication(ctx, s, id, placesOf(places, q.Allocation), q, emit)
}

// logReader reads one application's.
type logReader struct {
	site   site.Site
	id     *yarnpb.ApplicationId
	query  cluster.LogQuery
	emit   func(heading string, lines []*clusterpb.Line) error
	client *protocol.Client
	web    *http.Client
	report *yarnpb.ApplicationReport // nil where YARN does not say
	silent error                     // why
	seen   map[string]bool           // containers that were read
}

// ReadApplication reads what the nodes have, as long as they have it, and what they have put on
// HDFS: while an application lives the nodes first, else HDFS.
func ReadApplication(ctx context.Context, s site.Site, id *yarnpb.ApplicationId, places []Location, q cluster.LogQuery, emit func(string, []*clusterpb.Line) error) error {
	r := &logReader{site: s, id: id, query: q, emit: emit, seen: map[string]bool{}, web: &http.Client{CheckRedirect: stay}}
	defer r.web.CloseIdleConnections()
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	r.client = client
	limited, cancel := context.WithTimeout(ctx, 2*site.ReachLimit)
	r.report, r.silent = client.Report(limited, id)
	cancel()
	if r.silent != nil {
		r.report = nil
	}
	lives := r.report != nil && !protocol.Ended(r.report.GetYarnApplicationState())
	if lives {
		if err := r.fromNodes(ctx, r.living(ctx, places)); err != nil {
			return err
		}
	}
	kept := r.fromHDFS(ctx)
	var given emitError
	if errors.As(kept, &given) || ctx.Err() != nil {
		return kept
	}
	if !lives && r.collecting() {
		if err := r.fromNodes(ctx, places); err != nil {
			return err
		}
	}
	absent := errors.Is(kept, fs.ErrNotExist)
	if lives && (len(r.seen) > 0 || absent) || len(r.seen) > 0 && (kept == nil || absent) {
		return nil // also nothing yet
	}
	return r.explain(kept)
}

// stay has a node's word that another server may know more be its answer.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// emitError is one of whoever takes the lines: nothing else is to be tried.
type emitError struct{ error }

func (e emitError) Unwrap() error { return e.error }

// living adds the containers that YARN knows to those that are remembered.
func (r *logReader) living(ctx context.Context, places []Location) []Location {
	ctx, cancel := context.WithTimeout(ctx, site.ReachLimit)
	defer cancel()
	found, err := r.client.Containers(ctx, r.report.GetCurrentApplicationAttemptId())
	if err != nil {
		return places
	}
	have := map[string]bool{}
	for _, p := range places {
		have[p.Container] = true
	}
	for _, c := range found {
		if name := protocol.ContainerName(c.GetContainerId()); !have[name] {
			web := c.GetNodeHttpAddress()
			if _, after, ok := strings.Cut(web, "://"); ok {
				web = after
			}
			places = append(places, Location{Container: name, Node: protocol.NodeName(c.GetNodeId()), Web: web})
		}
	}
	return places
}

// collecting is whether the nodes of an application that has ended may have what is not on
// HDFS yet.
func (r *logReader) collecting() bool {
	switch r.report.GetLogAggregationStatus() {
	case yarnpb.LogAggregationStatus_LOG_NOT_START, yarnpb.LogAggregationStatus_LOG_RUNNING, yarnpb.LogAggregationStatus_LOG_RUNNING_WITH_FAILURE:
		return r.report != nil
	}
	return false
}

// explain says in one line why there is nothing.
func (r *logReader) explain(err error) error {
	name := protocol.ApplicationName(r.id)
	what := "the logs of " + name
	status := r.report.GetLogAggregationStatus()
	switch {
	case errors.Is(err, aggregated.ErrFormat):
		return fmt.Errorf("%s are in another format than TFile, which alone is read here (yarn.log-aggregation.file-formats): %w; read them with yarn logs -applicationId %s", what, err, name)
	case errors.Is(err, aggregated.ErrCompression):
		return fmt.Errorf("%s: %w; read them with yarn logs -applicationId %s", what, err, name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s are for %s alone, and for whom YARN's administrator lets: %w", what, r.user(), err)
	case err == nil && r.collecting():
		return fmt.Errorf("%s are not there yet: what is there is nothing of what is asked for, and not all nodes have put theirs on HDFS; the same again in a moment", what)
	case err == nil && r.query.Task != "":
		return fmt.Errorf("%s hold nothing of %s", what, r.query.Task)
	case err == nil:
		return fmt.Errorf("%s hold nothing: none of its containers wrote anything", what)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(r.silent, protocol.ErrGone):
		return fmt.Errorf("%s: YARN does not know that application, and no logs of it are below %s on HDFS: see that it is one of this YARN and of user %s", what, r.root(), r.user())
	case r.silent != nil:
		return fmt.Errorf("%s: none are below %s on HDFS, and %w", what, r.root(), r.silent)
	case status == yarnpb.LogAggregationStatus_LOG_DISABLED:
		return fmt.Errorf("%s are gone: this YARN keeps none of applications that have ended; yarn.log-aggregation-enable=true for its nodes and ResourceManager makes it keep them", what)
	case r.collecting():
		return fmt.Errorf("%s are not there yet: the nodes put them on HDFS within seconds of its end; the same again in a moment", what)
	case status == yarnpb.LogAggregationStatus_LOG_FAILED, status == yarnpb.LogAggregationStatus_LOG_TIME_OUT:
		return fmt.Errorf("%s are gone: its nodes could not put them below %s on HDFS, see what the NodeManagers' own logs say", what, r.root())
	}
	return fmt.Errorf("%s are not below %s on HDFS: none of its containers wrote any, or they were removed (yarn.log-aggregation.retain-seconds)", what, r.root())
}

// user is the application's.
func (r *logReader) user() string {
	if u := r.report.GetUser(); u != "" {
		return u
	}
	return r.site.User
}

// Bounds of what is read of one log for its last lines, in bytes.
const (
	leastBytes = 256 << 10
	lineBytes  = 1 << 10 // for each line that is asked for
	longest    = 64 << 10
	batch      = 1000 // lines that are given at once
)

// keep is how much of a log's end is enough for the lines asked for; 0 for all of it.
func (r *logReader) keep() int64 {
	if r.query.Last <= 0 || r.query.Grep != nil {
		return 0
	}
	return max(leastBytes, int64(r.query.Last)*lineBytes)
}

// log gives the lines of one log; cut says that its beginning is left out.
func (r *logReader) log(o owner, container, node, name string, text io.Reader, cut bool) error {
	heading := o.heading(container, node, name)
	stream := clusterpb.Line_STDOUT
	if name == "stderr" || strings.HasSuffix(name, ".err") {
		stream = clusterpb.Line_STDERR
	}
	var lines []*clusterpb.Line
	give := func() error {
		if len(lines) == 0 {
			return nil
		}
		if err := r.emit(heading, lines); err != nil {
			return emitError{err}
		}
		heading, lines = "", nil
		return nil
	}
	in := bufio.NewReaderSize(text, longest)
	if cut {
		if _, err := in.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
	}
	for {
		raw, err := in.ReadSlice('\n')
		if line := strings.TrimRight(string(raw), "\r\n"); len(raw) > 0 && (r.query.Grep == nil || r.query.Grep.MatchString(line)) {
			lines = append(lines, &clusterpb.Line{Stream: stream, Task: o.label(container), Text: strings.ToValidUTF8(line, "\uFFFD")})
		}
		switch last := r.query.Last; {
		case last > 0 && len(lines) > last+batch:
			lines = append(lines[:0], lines[len(lines)-last:]...)
		case last <= 0 && len(lines) >= batch:
			if err := give(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	if last := r.query.Last; last > 0 {
		lines = lines[max(0, len(lines)-last):]
	}
	return give()
}
