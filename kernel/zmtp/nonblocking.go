package zmtp

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// The first ordinary system call of a process that was idle wakes the runtime's monitor thread,
// which then looks at the process every 20 µs until it is idle again: of a relayed cell that was
// a quarter of the CPU time. A call that cannot block needs no monitor. So the sockets are read
// and written without blocking by RawSyscall, which does not announce the call to the runtime.

// rawMost limits one raw call, because its thread keeps the processor meanwhile.
const rawMost = 256 << 10

// raw makes a raw system call that does not block; again reports that it would have blocked.
func raw(trap, fd uintptr, b []byte) (n int, again bool, err error) {
	b = b[:min(len(b), rawMost)]
	for {
		r, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(r), false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, errno
		}
	}
}

// TryWrite returns a function that writes as much as the system accepts without blocking and
// returns the number of bytes, or nil if nc does not support that. An error is returned by the
// next ordinary write.
func TryWrite(nc net.Conn) func([]byte) int {
	rc := rawConn(nc)
	if rc == nil {
		return nil
	}
	return func(b []byte) int {
		n := 0
		err := rc.Write(func(fd uintptr) bool {
			n, _, _ = raw(syscall.SYS_WRITE, fd, b) // after an error nothing is written
			return true
		})
		if err != nil {
			return 0
		}
		return n
	}
}

// NewReader returns a reader of nc, for one goroutine, that reads without blocking and then
// waits, or nc if it does not support that.
func NewReader(nc net.Conn) io.Reader {
	rc := rawConn(nc)
	if rc == nil {
		return nc
	}
	r := &reader{rc: rc}
	r.try = r.read
	return r
}

// rawConn returns the descriptor of nc, which does not block, or nil.
func rawConn(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return rc
}

// reader is a reader of NewReader.
type reader struct {
	rc  syscall.RawConn
	try func(fd uintptr) bool // read, made once

	into []byte
	n    int
	err  error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.into = p
	err := r.rc.Read(r.try)
	r.into = nil
	switch {
	case err != nil: // closed, or past the deadline
		return 0, err
	case r.err != nil:
		return 0, os.NewSyscallError("read", r.err)
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// read reads what is there; false waits for more.
func (r *reader) read(fd uintptr) bool {
	var again bool
	r.n, again, r.err = raw(syscall.SYS_READ, fd, r.into)
	return !again
}
