package forking

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// listener is a unix socket that only this user can open.
type listener struct {
	file *os.File // non-blocking, with the runtime's poller
	path string
	at   unix.Stat_t
}

// listen opens a socket at path.
func listen(path string) (*listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	l := &listener{file: os.NewFile(uintptr(fd), path), path: path}
	before := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	unix.Umask(before)
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err == nil {
		err = unix.Stat(path, &l.at)
	}
	if err != nil {
		l.file.Close()
		process, name, _ := strings.Cut(path, "/cwd/") // in YARN's long folders the path goes by way of /proc
		if dir, unknown := os.Readlink(process + "/cwd"); unknown == nil {
			path = dir + "/" + name
		}
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// accept waits for the next connection.
func (l *listener) accept() (*os.File, error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if waitErr := raw.Read(func(s uintptr) bool {
		for {
			fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	}); waitErr != nil {
		return nil, waitErr
	}
	if err != nil {
		return nil, fmt.Errorf("accept on %s: %w", l.path, err)
	}
	return os.NewFile(uintptr(fd), l.path), nil
}

// close closes the socket, and removes its path unless that is another socket by now.
func (l *listener) close() {
	l.file.Close()
	var at unix.Stat_t
	if unix.Stat(l.path, &at) == nil && at.Ino == l.at.Ino {
		os.Remove(l.path)
	}
}

// ofThisUser returns whether the peer's process has this user's ID.
func ofThisUser(conn *os.File) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ours = err == nil && int(peer.Uid) == os.Getuid()
	})
	return err == nil && ours
}

// receive waits for data on a connection, and for descriptors that came with it, which are
// close-on-exec.
func receive(conn *os.File, data []byte) (n int, fds []int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(16*4))
	oobn := 0
	if waitErr := raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), data, oob, unix.MSG_CMSG_CLOEXEC)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	}); waitErr != nil {
		return 0, nil, waitErr
	}
	if err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, nil, err
	}
	for i := range messages {
		came, parseErr := unix.ParseUnixRights(&messages[i])
		if parseErr != nil {
			err = parseErr
		}
		fds = append(fds, came...)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, fds, err
}
