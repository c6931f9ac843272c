package tensorboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/internal/lazyre"
	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// clusterName matches names in paths, which become folders.
var clusterName = lazyre.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Broker serves all boards of this user on a unix socket of jupyter-server-proxy: /NAME/TOKEN/…
// is forwarded to the socket in NAME's folder below dir, whose proxy checks the token. It ends
// with ctx or its parent process: a Jupyter server that is killed does not end its children.
func Broker(ctx context.Context, socket, dir string) error {
	parent := os.Getppid()
	ln, err := unixsock.Listen(socket)
	if err != nil {
		return fmt.Errorf("open the socket that jupyter-server-proxy has named: %w; reload the page, which starts this again",
			err)
	}
	server := &http.Server{Handler: route(dir), ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		awaitOrphaned(ctx, parent, time.Second)
		_ = server.Close() // nothing to save
	}()
	err = server.Serve(ln)
	cancel()
	<-watched
	removeProxyFolder(socket, parent)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve TensorBoards to jupyter-server-proxy: %w; reload the page, which starts this again", err)
	}
	return nil
}

// awaitOrphaned returns when this process's parent has ended, or ctx ends.
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

// The folders of jupyter-server-proxy's sockets, and how long the Jupyter server may take to
// end after the broker.
const (
	proxyFolder   = "jupyter-server-proxy-"
	serverTimeout = 5 * time.Second
)

// removeProxyFolder removes the folder that jupyter-server-proxy created for the socket, once the Jupyter
// server has ended: before that the server would still forward there, and whoever creates the
// folder again would serve pages in the notebook's origin.
func removeProxyFolder(socket string, parent int) {
	folder := filepath.Dir(socket)
	if !strings.HasPrefix(filepath.Base(folder), proxyFolder) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	awaitOrphaned(ctx, parent, 50*time.Millisecond)
	if os.Getppid() != parent {
		_ = os.Remove(folder) // removes empty folders only
	}
}

func route(dir string) http.Handler {
	return hardened(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		socket := filepath.Join(dir, name, SocketName)
		if !found || !clusterName().MatchString(name) {
			http.NotFound(w, r)
			return
		}
		if _, err := os.Stat(socket); err != nil {
			http.Error(w, "this cluster's TensorBoard is gone: %tfcluster tensorboard opens another", http.StatusNotFound)
			return
		}
		transport := unixTransport(socket)
		defer transport.CloseIdleConnections()
		proxy := &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL.Scheme, p.Out.URL.Host = "http", "tensorboard"
				removeCredentials(p.Out)
			},
			Transport:      transport,
			ModifyResponse: func(r *http.Response) error { withoutHardened(r); return nil },
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "this cluster's TensorBoard does not answer: "+err.Error()+"; %tfcluster tensorboard starts it again",
					http.StatusBadGateway)
			},
		}
		proxy.ServeHTTP(w, r)
	}))
}
