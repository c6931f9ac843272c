package hdfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/colinmarc/hdfs/v2"
)

// Read returns the contents of a file.
func (f *FS) Read(ctx context.Context, name string) ([]byte, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Reader reads one file. After an outage of HDFS it continues at its offset. It is not safe for
// concurrent use.
type Reader struct {
	fs   *FS
	ctx  context.Context // for all reads
	name string
	info fs.FileInfo

	// session and file are nil between a failure and the next read.
	session *session
	unwatch func() bool
	file    *hdfs.FileReader
	offset  int64
}

// Open opens a file for reading. The end of ctx ends its reads too.
func (f *FS) Open(ctx context.Context, name string) (*Reader, error) {
	info, err := f.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("cannot read %s: it is a folder: name a file in it", name)
	}
	return &Reader{fs: f, ctx: ctx, name: name, info: info}, nil
}

// Info returns size and times of the file when it was opened.
func (r *Reader) Info() fs.FileInfo { return r.info }

func (r *Reader) Read(b []byte) (int, error) {
	at, err := r.fs.resolve(r.name)
	if err != nil {
		return 0, err
	}
	var n int
	var last error
	err = r.fs.retry(r.ctx, "read", at, func() error {
		if n, last = r.try(at, b); n > 0 || last == nil || errors.Is(last, io.EOF) {
			return nil // a permanent error is returned again by the next read
		}
		r.drop()
		return last
	})
	return n, cmp.Or(err, last)
}

// try reads once, at the current offset.
func (r *Reader) try(at location, b []byte) (int, error) {
	if r.offset >= r.info.Size() {
		return 0, io.EOF
	}
	if r.file == nil {
		if err := r.reopen(at); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Read(b)
	r.offset += int64(n)
	if errors.Is(err, io.EOF) && r.offset < r.info.Size() {
		err = io.ErrUnexpectedEOF // the connection ended, not the file
	}
	return n, err
}

// reopen opens the file again, and fails if it was replaced.
func (r *Reader) reopen(at location) error {
	s, err := r.fs.get(r.ctx, at)
	if err != nil {
		return err
	}
	r.session, r.unwatch = s, context.AfterFunc(r.ctx, s.abort)
	file, err := s.Open(at.path)
	if err != nil {
		return err
	}
	if !sameFile(r.info, file.Stat()) {
		return localError{errors.New("the file was replaced while it was read: read it when nothing writes to it")}
	}
	if _, err := file.Seek(r.offset, io.SeekStart); err != nil {
		return err
	}
	r.file = file
	return nil
}

// sameFile reports whether two results of Stat are of the same file, which may have grown.
func sameFile(a, b fs.FileInfo) bool {
	x, okX := a.Sys().(*hdfs.FileStatus)
	y, okY := b.Sys().(*hdfs.FileStatus)
	return okX && okY && x.GetFileId() == y.GetFileId() && a.Size() <= b.Size()
}

// Seek sets the offset of the next read.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.info.Size()
	}
	if offset < 0 {
		return 0, fmt.Errorf("read %s at %d: %w", r.name, offset, fs.ErrInvalid)
	}
	if r.file != nil {
		if _, err := r.file.Seek(min(offset, r.info.Size()), io.SeekStart); err != nil {
			r.drop() // the next read opens the file again
		}
	}
	r.offset = offset
	return offset, nil
}

// drop closes the connection.
func (r *Reader) drop() {
	if r.session == nil {
		return
	}
	r.unwatch()
	r.session.end()
	r.session, r.file = nil, nil
}

// Close closes the reader. It only frees local resources and returns nil.
func (r *Reader) Close() error {
	if r.session != nil && r.file != nil && r.file.Close() == nil && r.unwatch() {
		if at, err := r.fs.resolve(r.name); err == nil {
			r.fs.put(at, r.session)
			r.session, r.file = nil, nil
		}
	}
	r.drop()
	return nil
}
