package lines

import (
	"bufio"
	"context"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// downloadStall is how long a client of a download may take nothing in.
const downloadStall = time.Minute

// download sends the lines of a run as a file of plain text. It holds one reply of the source at a time.
func (h *Handler) download(w http.ResponseWriter, r *http.Request) {
	req, err := request(r.URL.Query())
	if err == nil && req.GetAfter() != nil {
		err = fmt.Errorf("the parameter after is only for /lines/live: remove it, or request /lines/live")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.closed, cancel)()
	f := &file{
		handler: h, w: w, conn: http.NewResponseController(w), run: req.GetRun(), times: r.URL.Query().Get("times") == "1",
	}
	// A write that is under way when the handler is closed ends, too.
	defer context.AfterFunc(h.closed, func() { _ = f.conn.SetWriteDeadline(time.Now().Add(closingWrite)) })()
	if err := h.source(ctx, req, f.reply); err != nil {
		if f.out != nil {
			panic(http.ErrAbortHandler) // the client must not take a part for the whole file
		}
		text, code := explain(err)
		http.Error(w, text, code)
		return
	}
	f.begin()
	f.endLine()
	_ = f.out.Flush() // the client may have gone
}

// file writes lines to a response.
type file struct {
	handler *Handler
	w       http.ResponseWriter
	conn    *http.ResponseController
	out     *bufio.Writer // nil until the header is written
	run     int32
	times   bool
	last    *clusterpb.Line // the last one, if its end of line is not written yet: another may continue it
}

// begin writes the header, once.
func (f *file) begin() {
	if f.out != nil {
		return
	}
	name := f.handler.name + ".log"
	if f.run > 0 {
		name = fmt.Sprintf("%s-run-%03d.log", f.handler.name, f.run)
	}
	head := f.w.Header()
	head.Set("Content-Type", "text/plain; charset=utf-8")
	head.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	head.Set("Content-Security-Policy", "sandbox")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	f.w.WriteHeader(http.StatusOK)
	_ = f.conn.Flush() // the client sees that it begins; a writer that cannot flush returns an error
	f.out = bufio.NewWriterSize(f.w, 64<<10)
}

// reply writes a reply of the source.
func (f *file) reply(u *clusterpb.LinesReply) error {
	if f.run == 0 {
		f.run = u.GetRun()
	}
	f.begin()
	if f.handler.closed.Err() == nil {
		_ = f.conn.SetWriteDeadline(time.Now().Add(downloadStall)) // a writer without deadlines returns an error
	}
	for _, note := range []string{u.GetHeading(), u.GetGap()} {
		if note != "" {
			f.endLine()
			f.write("-- " + note + " --\n")
		}
	}
	for _, l := range u.GetLines() {
		if !f.continued(l) {
			f.endLine()
			if f.times {
				f.write(time.Unix(0, l.GetUnixNano()).UTC().Format("2006-01-02T15:04:05.000Z "))
			}
			f.write("[" + l.GetTask() + "] ")
		}
		f.write(l.GetText())
		f.last = l
	}
	return f.out.Flush() // returns the error of any write before
}

// continued returns whether a line is the next part of the long line before it.
func (f *file) continued(l *clusterpb.Line) bool {
	return f.last.GetContinues() && l.GetTask() == f.last.GetTask() && l.GetStream() == f.last.GetStream() &&
		l.GetSeq() == f.last.GetSeq()+1
}

func (f *file) endLine() {
	if f.last != nil {
		f.write("\n")
	}
	f.last = nil
}

// write writes to the buffer. Flush returns its error.
func (f *file) write(text string) { _, _ = f.out.WriteString(text) }
