package containerlogs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// agentLogs are the logs of a tfcluster container, in the order in which they are written.
var agentLogs = []string{markFile, "prelaunch.err", "stderr", "stdout"}

// nodeTimeout is how long a node may take to begin its response, and to continue it.
const nodeTimeout = 5 * time.Second

// markBytes bounds the part of markFile in which the mark is searched.
const markBytes = 4 << 10

// errSilent: a node has sent nothing for nodeTimeout.
var errSilent = fmt.Errorf("it has sent nothing for %v", nodeTimeout)

// errNone: a node does not have a log, or no longer.
var errNone = errors.New("the node does not have the log")

// nodeFailure is why a log of a container could not be read from its node.
type nodeFailure struct {
	container string
	begun     bool // some of the container's logs was read
	err       error
}

// nodeError returns the first error of a node because of which logs are missing: HDFS did not have them either.
func (r *logReader) nodeError() error {
	for _, f := range r.failures {
		if f.begun || !r.seen[f.container] {
			return f.err
		}
	}
	return nil
}

// fromNodes reads the logs on the nodes. It skips those that cannot be read, and keeps the errors in r.failures.
func (r *logReader) fromNodes(ctx context.Context, locations []Location) error {
	unreachable := map[string]error{}
	for _, p := range locations {
		if r.seen[p.Container] || p.Web == "" {
			continue
		}
		o := owner{task: p.Task, attempt: p.Attempt}
		if (p.Task != "" || isContainer(r.query.Task)) && !o.matches(r.query.Task, p.Container) {
			continue
		}
		if err := unreachable[p.Web]; err != nil {
			r.failures = append(r.failures, nodeFailure{p.Container, false, err})
			continue
		}
		var failed error
		for _, name := range agentLogs {
			answered, err := r.fromNode(ctx, p, &o, name)
			if _, ours := errors.AsType[emitError](err); ours || ctx.Err() != nil {
				return err
			}
			if err != nil && !errors.Is(err, errNone) {
				err = fmt.Errorf("the NodeManager's web server %s: %w", p.Web, err)
				failed = cmp.Or(failed, err)
			}
			if err != nil && !answered {
				unreachable[p.Web] = err
				break
			}
			if name == markFile && !o.matches(r.query.Task, p.Container) {
				break
			}
		}
		if failed != nil {
			r.failures = append(r.failures, nodeFailure{p.Container, r.seen[p.Container], failed})
		}
	}
	return nil
}

// fromNode reads one log of a container from its node. answered reports whether the node responded.
func (r *logReader) fromNode(ctx context.Context, p Location, o *owner, name string) (answered bool, err error) {
	keep := r.tailBytes()
	size := int64(math.MaxInt64)
	switch {
	case name == markFile:
		size = markBytes
	case keep > 0:
		size = -keep
	}
	query := url.Values{"size": {strconv.FormatInt(size, 10)}, "user.name": {r.site.User}}
	at := url.URL{
		Scheme: "http", Host: p.Web, Path: "/ws/v1/node/containers/" + p.Container + "/logs/" +
			name, RawQuery: query.Encode(),
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(nodeTimeout, func() { cancel(errSilent) })
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return false, err
	}
	response, err := r.web.Do(request)
	if without, ok := errors.AsType[*url.Error](err); ok { // the address is long, and says nothing
		err = without.Err
	}
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	defer slow.Stop()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusTemporaryRedirect: // to the server of aggregated logs
		return true, errNone
	default:
		return true, fmt.Errorf("it answers %s", strings.ToLower(response.Status))
	}
	text, length, err := nodeText(&timeoutReader{response.Body, slow})
	if err != nil {
		return true, err
	}
	r.seen[p.Container] = true
	if name == markFile {
		b, err := io.ReadAll(io.LimitReader(text, markBytes))
		if o.task == "" && err == nil {
			*o = readMark(string(b))
		}
		return true, err
	}
	if keep == 0 || length < keep {
		keep = length
	}
	return true, r.emitLog(*o, p.Container, p.Node, name, io.LimitReader(text, keep), keep < length)
}

// timeoutReader reads a node's response, and cancels the call if the node sends nothing for nodeTimeout.
type timeoutReader struct {
	from io.Reader
	slow *time.Timer
}

func (p *timeoutReader) Read(b []byte) (int, error) {
	p.slow.Reset(nodeTimeout)
	n, err := p.from.Read(b)
	p.slow.Stop() // no timeout while the lines are emitted
	return n, err
}

// nodeText returns the text of a log within a NodeManager's response, which has lines before and after it,
// or is empty if there is no log. length is the length of the whole log.
func nodeText(answer io.Reader) (text io.Reader, length int64, err error) {
	in := bufio.NewReader(answer)
	if b, _ := in.Peek(len("Container: ")); string(b) != "Container: " { // there is no log
		return strings.NewReader(""), 0, nil
	}
	for {
		raw, err := in.ReadSlice('\n') // bounded by the buffer, since the response is not trusted
		if err != nil {
			return nil, 0, fmt.Errorf("the NodeManager's response ends before the log: %w", err)
		}
		line := strings.TrimSpace(string(raw))
		if value, ok := strings.CutPrefix(line, "LogLength:"); ok {
			if length, err = strconv.ParseInt(value, 10, 64); err != nil {
				return nil, 0, fmt.Errorf("the NodeManager's response has no length: %w", err)
			}
		}
		if line == "LogContents:" {
			return in, length, nil
		}
	}
}
