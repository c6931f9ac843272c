package containerlogs

import (
	"bufio"
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

// agentLogs are those of a container of ours, in the order in which they are written.
var agentLogs = []string{markFile, "prelaunch.err", "stderr", "stdout"}

// nodeAnswer is how long a node may take to begin its answer, or to go on with it.
const nodeAnswer = 5 * time.Second

// markBytes of a container's first log say whose it is.
const markBytes = 4 << 10

// fromNodes reads what the nodes themselves have. One that does not answer, or has
// nothing of a container any more, is passed over.
func (r *logReader) fromNodes(ctx context.Context, places []Location) error {
	deaf := map[string]bool{}
	for _, p := range places {
		if r.seen[p.Container] || deaf[p.Web] || p.Web == "" {
			continue
		}
		o := owner{task: p.Task, attempt: p.Attempt}
		if p.Task != "" && !o.wanted(r.query.Task, p.Container) {
			continue
		}
		for _, name := range agentLogs {
			answered, err := r.fromNode(ctx, p, &o, name)
			if _, ours := errors.AsType[emitError](err); ours || ctx.Err() != nil {
				return err
			}
			deaf[p.Web] = err != nil && !answered
			if deaf[p.Web] || name == markFile && !o.wanted(r.query.Task, p.Container) {
				break
			}
		}
	}
	return nil
}

// fromNode reads one log of a container from its node; answered is whether that said
// anything.
func (r *logReader) fromNode(ctx context.Context, p Location, o *owner, name string) (answered bool, err error) {
	keep := r.keep()
	size := int64(math.MaxInt64)
	switch {
	case name == markFile:
		size = markBytes
	case keep > 0:
		size = -keep
	}
	query := url.Values{"size": {strconv.FormatInt(size, 10)}, "user.name": {r.site.User}}
	at := url.URL{Scheme: "http", Host: p.Web, Path: "/ws/v1/node/containers/" + p.Container + "/logs/" + name, RawQuery: query.Encode()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.AfterFunc(nodeAnswer, cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return false, err
	}
	response, err := r.web.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	defer slow.Stop()
	if response.StatusCode != http.StatusOK {
		return true, fmt.Errorf("%s answers %s", p.Web, strings.ToLower(response.Status))
	}
	text, length, err := nodeText(&patient{response.Body, slow})
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
	return true, r.log(*o, p.Container, p.Node, name, io.LimitReader(text, keep), keep < length)
}

// patient reads what a node goes on to answer: slow ends the call where nothing comes.
type patient struct {
	from io.Reader
	slow *time.Timer
}

func (p *patient) Read(b []byte) (int, error) {
	p.slow.Reset(nodeAnswer)
	n, err := p.from.Read(b)
	p.slow.Stop() // who takes the lines may take his time
	return n, err
}

// nodeText is what a log holds of a NodeManager's answer, which begins with lines on what
// it is, if it holds anything, and ends with others. length is of the whole log.
func nodeText(answer io.Reader) (text io.Reader, length int64, err error) {
	in := bufio.NewReader(answer)
	if b, _ := in.Peek(len("Container: ")); string(b) != "Container: " { // it holds nothing
		return strings.NewReader(""), 0, nil
	}
	for {
		raw, err := in.ReadSlice('\n') // no longer than the buffer, whoever answers
		if err != nil {
			return nil, 0, fmt.Errorf("the NodeManager's answer ends before the log: %w", err)
		}
		line := strings.TrimSpace(string(raw))
		if given, ok := strings.CutPrefix(line, "LogLength:"); ok {
			if length, err = strconv.ParseInt(given, 10, 64); err != nil {
				return nil, 0, fmt.Errorf("the NodeManager's answer names no length: %w", err)
			}
		}
		if line == "LogContents:" {
			return in, length, nil
		}
	}
}
