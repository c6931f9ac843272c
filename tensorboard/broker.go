package tensorboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// clusterName is what a path may name: it becomes a folder.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Broker serves, on a unix socket that jupyter-server-proxy made for it, every board
// of this user: /NAME/TOKEN/… goes to the socket in NAME's folder below dir, whose
// proxy checks the token. It ends with ctx, or when the process that started it is gone:
// a Jupyter server that is killed does not end what it started.
func Broker(ctx context.Context, socket, dir string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a stale socket: %w", err)
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for jupyter-server-proxy: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return errors.Join(fmt.Errorf("make the socket private: %w", err), ln.Close())
	}
	server := &http.Server{Handler: route(dir), ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		awaitOrphaned(ctx)
		_ = server.Close() // it only serves on
	}()
	defer func() {
		cancel()
		<-watched
	}()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve jupyter-server-proxy: %w", err)
	}
	return nil
}

// awaitOrphaned returns when this process has another parent than now, or ctx ends.
func awaitOrphaned(ctx context.Context) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for parent := os.Getppid(); os.Getppid() == parent; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

func route(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		socket := filepath.Join(dir, name, SocketName)
		if !found || !clusterName.MatchString(name) {
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
				p.Out.Header.Del("Cookie")
				p.Out.Header.Del("Authorization")
			},
			Transport: transport,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "this cluster's TensorBoard does not answer: "+err.Error(), http.StatusBadGateway)
			},
		}
		proxy.ServeHTTP(w, r)
	})
}
