package unixsock

import (
	"cmp"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Pass writes a message and passes files with its first byte (SCM_RIGHTS in unix(7)). It returns how many bytes were
// written. A file that is closed in the meantime stays open until it is passed; a file that is closed
// already is an error.
func Pass(conn *net.UnixConn, message []byte, files ...*os.File) (int, error) {
	return pass(conn, message, files, nil)
}

// pass is Pass with the descriptors of the files whose Control is on.
func pass(conn *net.UnixConn, message []byte, files []*os.File, fds []int) (n int, err error) {
	if len(files) > 0 {
		raw, err := files[0].SyscallConn()
		if err != nil {
			return 0, err
		}
		var passed error
		err = raw.Control(func(fd uintptr) { n, passed = pass(conn, message, files[1:], append(fds, int(fd))) })
		return n, cmp.Or(err, passed)
	}
	n, _, err = conn.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
	if err == nil && n < len(message) { // the descriptors went with the part that was written
		var more int
		more, err = conn.Write(message[n:])
		n += more
	}
	return n, err
}

// maxFiles is the number of files that Receive takes with one message.
const maxFiles = 8

// Receive reads once and returns the number of bytes, and the files that came with them. The caller closes the files.
// Programs that this process starts do not inherit them.
func Receive(conn *net.UnixConn, buffer []byte) (n int, files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(buffer, oob)
	if err != nil {
		return n, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials, for example
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		for _, f := range files {
			_ = f.Close() // not complete
		}
		return n, nil, fmt.Errorf("some were lost: this process may have too many open files (raise ulimit -n), "+
			"or the other one sent more than %d", maxFiles)
	}
	return n, files, nil
}
