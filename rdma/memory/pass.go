package memory

import (
	"cmp"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Send writes a message to a unix socket and sends descriptors with its first byte (SCM_RIGHTS in unix(7)). A file that
// is closed meanwhile stays open until they are sent; one that is closed already is an error.
func Send(conn *net.UnixConn, message []byte, files ...*os.File) error {
	if err := send(conn, message, files, nil); err != nil {
		return fmt.Errorf("pass %d descriptors of shared memory to another process: %w", len(files), err)
	}
	return nil
}

// send is Send with the descriptors of files whose Control is on.
func send(conn *net.UnixConn, message []byte, files []*os.File, fds []int) error {
	if len(files) > 0 {
		raw, err := files[0].SyscallConn()
		if err != nil {
			return err
		}
		var sent error
		err = raw.Control(func(fd uintptr) { sent = send(conn, message, files[1:], append(fds, int(fd))) })
		return cmp.Or(err, sent)
	}
	n, _, err := conn.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
	if err == nil && n < len(message) { // the descriptors went with the part that was written
		_, err = conn.Write(message[n:])
	}
	return err
}

// maxFiles is the number of descriptors that Receive takes with one message.
const maxFiles = 8

// Receive reads once from a unix socket and returns the number of bytes with the descriptors that came with
// them, which the caller closes. They are not inherited by programs that this process starts.
func Receive(conn *net.UnixConn, buffer []byte) (n int, files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(buffer, oob)
	if err != nil {
		return n, nil, fmt.Errorf("receive descriptors of shared memory from another process: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, nil, fmt.Errorf("receive descriptors of shared memory from another process: %w", err)
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
		return n, nil, fmt.Errorf("receive descriptors of shared memory from another process: some were lost: this process may have too many open files (raise ulimit -n), or the other one sent more than %d", maxFiles)
	}
	return n, files, nil
}
