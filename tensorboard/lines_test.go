package tensorboard

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLines: lines are served without TensorBoard, and after it was stopped, at the path of TensorBoard.
func TestLines(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	lines := http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.RequestURI()) })
	b := New("brave-otter", findTensorBoard(t), filepath.Join(dir, "brave-otter"), filepath.Join(dir, "log"), lines)
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	at, err := b.Lines()
	if err != nil {
		t.Fatal(err)
	}
	client := unixClient(t, startBroker(t, dir))
	check := func(when string, board int) {
		t.Helper()
		base := strings.TrimPrefix(at.Path, Prefix)
		for path, want := range map[string]string{
			"lines?run=3": "/lines?run=3", "lines/live": "/lines/live", "lines/a%2Fb": "/lines/a%2Fb",
		} {
			if resp, body := get(t, client, base+path); resp.StatusCode != http.StatusOK || body != want {
				t.Errorf("%s, %s: %d %q, want %q", when, path, resp.StatusCode, body, want)
			}
		}
		if resp, body := get(t, client, base); resp.StatusCode != board {
			t.Errorf("%s, TensorBoard's page: %d %.100q, want %d", when, resp.StatusCode, body, board)
		}
		if resp, _ := get(t, client, "/brave-otter/"+testToken+"/lines"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s, another token: %d", when, resp.StatusCode)
		}
	}
	check("before TensorBoard was opened", http.StatusBadGateway)
	if a := open(t, b, dir); a.Path != at.Path || a.Socket != at.Socket {
		t.Errorf("TensorBoard is at %v, lines are at %v", a, at)
	}
	check("with TensorBoard", http.StatusOK)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	check("after TensorBoard was stopped", http.StatusBadGateway)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(at.Socket); err == nil {
		t.Error("Close leaves the socket")
	}
}

// TestNoLines: a board without a handler for lines has none, and its proxy ends when TensorBoard is stopped.
func TestNoLines(t *testing.T) {
	t.Parallel()
	b, dir := newBoard(t, findTensorBoard(t))
	if _, err := b.Lines(); err == nil {
		t.Error("it serves lines")
	}
	a := open(t, b, dir)
	if resp, _ := get(t, unixClient(t, startBroker(t, dir)), strings.TrimPrefix(a.Path, Prefix)+
		"lines"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("lines: %d", resp.StatusCode)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Socket); err == nil {
		t.Error("Stop leaves the socket")
	}
}
