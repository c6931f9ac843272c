package tensorboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/unixsock"
)

// clusterName is what a path may name: it becomes a folder.
var clusterName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
})

// Broker serves, on a unix socket that jupyter-server-proxy made for it, every board
// of this user: /NAME/TOKEN/… goes to the socket in NAME's folder below dir, whose
// proxy checks the token. It ends with ctx, or when the process that started it is gone:
// a Jupyter server that is killed does not end what it started.
func Broker(ctx context.Context, socket, dir string) error {
	parent := os.Getppid()
	ln, err := unixsock.Listen(socket)
	if err != nil {
		return fmt.Errorf("listen for jupyter-server-proxy: %w", err)
	}
	server := &http.Server{Handler: route(dir), ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		awaitOrphaned(ctx, parent, time.Second)
		_ = server.Close() // it only serves on
	}()
	err = server.Serve(ln)
	cancel()
	<-watched
	tidy(socket, parent)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve jupyter-server-proxy: %w", err)
	}
	return nil
}

// awaitOrphaned returns when this process has another parent, or ctx ends.
func awaitOrphaned(ctx context.Context, parent int, interval time.Duration) {
	look := time.NewTicker(interval)
	defer look.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// Where jupyter-server-proxy makes its sockets, and how long after ending the broker
// the Jupyter server may take to end itself.
const (
	proxyFolder   = "jupyter-server-proxy-"
	serverTimeout = 5 * time.Second
)

// tidy removes the folder that jupyter-server-proxy made for the socket and leaves to
// nobody. Not while the Jupyter server lives: it would go on calling there, and whoever
// made the folder anew would answer in the notebook's origin.
func tidy(socket string, parent int) {
	folder := filepath.Dir(socket)
	if !strings.HasPrefix(filepath.Base(folder), proxyFolder) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	awaitOrphaned(ctx, parent, 50*time.Millisecond)
	if os.Getppid() != parent {
		_ = os.Remove(folder) // goes only where it is empty
	}
}

func route(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		socket := filepath.Join(dir, name, SocketName)
		if !found || !clusterName().MatchString(name) {
			http.NotFound(w, r)
			return
		}
		if _, err := os.Stat(socket); err != nil {
			http.Error(w, "this cluster's TensorBoard is gone", http.StatusNotFound)
			return
		}
		transport := unixTransport(socket)
		defer transport.CloseIdleConnections()
		proxy := &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL.Scheme, p.Out.URL.Host = "http", "tensorboard"
				strip(p.Out)
			},
			Transport: transport,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "this cluster's TensorBoard does not answer: "+err.Error(), http.StatusBadGateway)
			},
		}
		proxy.ServeHTTP(w, r)
	})
}
