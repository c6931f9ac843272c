// Package unixsock listens on unix sockets that only this user can connect to.
package unixsock

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Listen listens on a unix socket that only this user can connect to: 0600, in
// a folder of ours, and every peer's uid is checked.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove a stale socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err // it names the socket
	}
	// Not by the umask, which belongs to the whole process: files that others make at this
	// moment would get it too. Until now the folder and the check of peers keep others out.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("make the socket private: %w", err)
	}
	return &ownListener{ln.(*net.UnixListener)}, nil
}

// ownListener accepts connections of the same user only.
type ownListener struct{ *net.UnixListener }

// Accept waits for the next connection of this user; others are closed unheard.
func (l *ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(conn); err == nil && (uid == os.Getuid() || uid == 0) {
			return conn, nil
		}
		_ = conn.Close() // a stranger's
	}
}

func peerUID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look at a peer: %w", err)
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, fmt.Errorf("look at a peer: %w", err)
	}
	if cerr != nil {
		return 0, fmt.Errorf("look at a peer: %w", cerr)
	}
	return int(cred.Uid), nil
}
