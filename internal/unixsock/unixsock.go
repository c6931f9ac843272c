// Package unixsock listens on unix sockets that only this user can connect to, and passes files over them.
package unixsock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is the longest name of a socket that a client can connect to.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Listen listens on a unix socket that only this user can connect to: it has mode 0600, is in a
// private folder, and the user ID of every peer is checked.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		err = fmt.Errorf("make the folder of a socket: %w", err)
		session := os.Getenv("XDG_RUNTIME_DIR")
		if _, gone := os.Stat(session); session != "" && strings.HasPrefix(path, session+"/") && os.IsNotExist(gone) {
			err = fmt.Errorf("%w: XDG_RUNTIME_DIR is the folder of a login session, and is gone with it: "+
				"have it kept (loginctl enable-linger), log in again, and start Jupyter there", err)
		}
		return nil, err
	}
	// It gets its name when it listens: one with that name on which nobody listens was left by a killed process. The
	// first name is as long, and is what ss(8) and the peers' system calls show.
	dir, base := filepath.Split(path)
	aside := dir + base[:len(base)-1] + "~"
	for _, stale := range []string{path, aside} {
		if err := os.Remove(stale); err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("remove a socket that a killed process left: %w", err)
		}
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: this path has %d bytes, that of a socket at most %d: set XDG_RUNTIME_DIR, "+
			"or TMPDIR where the path begins with that, to a folder with a shorter path, and start Jupyter again", path,
			len(path), maxPath)
	}
	ln, err := net.Listen("unix", aside)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the other name
		}
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	own := &ownListener{UnixListener: ln.(*net.UnixListener), path: path}
	own.SetUnlinkOnClose(false) // it is renamed
	// The umask is not used for this, because it applies to the whole process and to files that
	// other goroutines create meanwhile. Until Chmod, the folder's mode and the peer check
	// protect the socket.
	if err := errors.Join(os.Chmod(aside, 0o600), os.Rename(aside, path)); err != nil {
		_ = os.Remove(aside)
		_ = own.Close()
		return nil, fmt.Errorf("set mode and name of the socket %s: %w", path, err)
	}
	return own, nil
}

// ownListener accepts only connections of the same user.
type ownListener struct {
	*net.UnixListener
	path   string
	remove sync.Once // a later socket may have the same name
}

// Close removes the socket.
func (l *ownListener) Close() error {
	l.remove.Do(func() { _ = os.Remove(l.path) }) // its folder may be gone
	return l.UnixListener.Close()
}

// Addr returns the socket's name.
func (l *ownListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Accept returns the next connection of this user; it closes connections of other users.
func (l *ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, ok := peerUID(conn); ok && (uid == os.Getuid() || uid == 0) {
			return conn, nil
		}
		_ = conn.Close() // of another user
	}
}

// peerUID returns the user at the other end of a connection; ok is false if the system does not say it.
func peerUID(conn *net.UnixConn) (uid int, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || cerr != nil {
		return 0, false
	}
	return int(cred.Uid), true
}

// Sweep removes sockets on which nobody listens any more: their processes were killed. Errors are ignored: a socket
// that stays harms nobody.
func Sweep(pattern string) {
	left, err := filepath.Glob(pattern)
	if err != nil {
		return
	}
	for _, path := range left {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close() // it lives
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// Pair returns two connections, each the peer of the other.
func Pair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	var conns [2]net.Conn
	for n, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		var ferr error
		conns[n], ferr = net.FileConn(file)
		err = errors.Join(err, ferr, file.Close())
	}
	if err != nil {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	return conns[0].(*net.UnixConn), conns[1].(*net.UnixConn), nil
}
