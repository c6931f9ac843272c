package webui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// boardOf is a coordinator whose TensorBoard opens when the test says how.
type boardOf chan *clusterpb.TensorBoardReply

func (b boardOf) TensorBoard(ctx context.Context,
	_ *clusterpb.TensorBoardRequest,
) (*clusterpb.TensorBoardReply, error) {
	select {
	case r := <-b:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestBoardPage: TensorBoard is opened by its first page, shown once it is open, and told of
// where it does not.
func TestBoardPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		open := make(boardOf, 1)
		p := &boardPage{coord: open, ctx: ctx, show: func(prefix string, at *clusterpb.TensorBoardReply) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s %s at %s", prefix, r.URL.Path, at.GetPath())
			})
		}}
		get := func(path string) string {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			return fmt.Sprint(w.Code, " ", w.Body)
		}
		for i, step := range []struct {
			reply *clusterpb.TensorBoardReply
			path  string
			want  string
		}{
			{nil, "/tensorboard/data/runs", "503 TensorBoard is not open: load its page"},
			{&clusterpb.TensorBoardReply{Error: "no module"}, "/tensorboard/", "503 no module"},
			{&clusterpb.TensorBoardReply{Path: "here"}, "/tensorboard/", "200 /tensorboard/ /tensorboard/ at here"},
			{nil, "/tensorboard/data/runs", "200 /tensorboard/ /tensorboard/data/runs at here"},
			{nil, "/tensorboard/", `http-equiv="refresh"`}, // it is opened again, which takes its time
		} {
			if step.reply != nil {
				open <- step.reply
			}
			if got := get(step.path); !strings.Contains(got, step.want) {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
		}
		open <- &clusterpb.TensorBoardReply{Error: "too late for that browser"} // and another is told, not made wait anew
		for p.underWay() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if got, want := get("/tensorboard/"), "503 too late for that browser"; !strings.Contains(got, want) {
			t.Errorf("the next look: %s, want %s", got, want)
		}
		cancel()
		p.close()
		<-p.open()
	})
}

func (p *boardPage) underWay() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opening != nil
}
