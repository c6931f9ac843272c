// Package webui serves the status page of a driver that the engine runs, and TensorBoard
// below it.
package webui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// page shows the state of executors and run, with links to the engine's log pages, to
// everyone whom the engine authorizes. It therefore has no lines of programs, arguments or
// environment variables.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Parse(pageText))
})

const pageText = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>tfcluster {{.Status.Name}}</title>
<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}
td,th{padding:.3em 1em .3em 0;text-align:left;border-bottom:1px solid #ccc}</style>
</head><body>
<h1>tfcluster {{.Status.Name}}</h1>
<p>{{.Status.State}}, {{.Describe}}, of {{.Status.Allocation}}.
Results, with event files for TensorBoard: {{.Status.Dir}}</p>
{{with .Board}}<p><a href="{{.}}">TensorBoard</a>. YARN's proxy only fetches:
what a plugin sends comes through up to 30 kB, and not from a frame of its own.</p>
{{end}}{{with .Status.Run}}<p>Run {{.Id}}: {{.State}}{{with .Progress}}, step {{.Step}}{{end}}</p>{{end}}
<table><tr><th>executor</th><th>task</th><th>host</th><th>state</th><th>run</th><th>step</th><th>logs</th></tr>
{{range .Rows}}<tr><td>{{.X.Id}}</td><td>{{.X.Task}}</td><td>{{.X.Host}}</td><td>{{.X.State}}</td>
<td>{{.Task.GetState}}</td><td>{{with .Task.GetStep}}{{.}}{{end}}</td>
<td>{{with .Logs}}<a href="{{.}}">container</a>{{end}}</td></tr>
{{end}}</table>
</body></html>
`

type row struct {
	X    *clusterpb.ExecutorStatus
	Task *clusterpb.TaskStatus
	Logs string
}

// pageLimit bounds the page's calls of the coordinator and the reading of a request's header;
// answerLimit the writing of a response.
const (
	pageLimit   = 10 * time.Second
	answerLimit = 20 * time.Second
)

// Page is the status page of a cluster. Its fields are set before Serve.
type Page struct {
	Control clusterpb.ControlServer
	// LogPage returns the URL of the engine's page with an executor's logs; "": none.
	LogPage func(id cluster.ExecutorID) string
	// Board serves an open TensorBoard below a path of the page; nil: the page has none.
	Board func(path string, at *clusterpb.TensorBoardReply) http.Handler
	Log   *slog.Logger
}

// Serve serves the page until ctx ends. guard refuses requests that the engine has not
// authorized.
func (p *Page) Serve(ctx context.Context, ln net.Listener, guard func(http.Handler) http.Handler) error {
	pages := http.NewServeMux()
	pages.HandleFunc("/", p.show)
	if p.Board != nil {
		board := &boardPage{coord: p.Control, show: p.Board, ctx: ctx}
		defer board.close()
		pages.Handle(boardPath, perWriteDeadline(board, answerLimit))
	}
	server := newServer(guard(pages), answerLimit)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns the error
	defer stop()
	if err := server.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the status page: %w", err)
	}
	return nil
}

func (p *Page) show(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageLimit)
	defer cancel()
	st, err := p.Control.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		http.Error(w, "the cluster does not answer", http.StatusServiceUnavailable)
		return
	}
	tasks := map[string]*clusterpb.TaskStatus{}
	for _, t := range st.GetRun().GetTasks() {
		tasks[t.GetTask()] = t
	}
	var rows []row
	for _, x := range st.GetExecutors() {
		rows = append(rows, row{x, tasks[x.GetTask()], p.LogPage(cluster.ExecutorID(x.GetId()))})
	}
	board := ""
	if p.Board != nil {
		board = boardPath[1:] // relative: YARN's proxy has the page at another path
	}
	var b bytes.Buffer
	if err := page().Execute(&b,
		map[string]any{"Status": st, "Rows": rows, "Describe": cluster.Describe(st.GetRoles()), "Board": board}); err != nil {
		p.Log.Warn("the status page cannot be shown; %tfcluster status shows the same", "err", err)
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes()) // the client may have gone
}
