package hdfs

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// Config is the configuration of an FS.
type Config struct {
	Conf *hadoopconf.Conf
	User string // of simple authentication, see hadoopconf.User
	// Bridge is how long an operation is retried after temporary errors; 0: one minute.
	Bridge time.Duration
	// Stall is how long one read or write of a connection may block; 0: 20 s.
	Stall time.Duration

	umask fs.FileMode // of Conf; set by New
}

// FS gives access to the files of the default HDFS, and of others by URI.
type FS struct {
	config Config

	mu sync.Mutex
	// Guarded by mu: one idle connection for each set of NameNodes.
	idle   map[string]*session
	closed bool
}

// New returns an FS. It connects on first use; Close closes idle connections.
func New(c Config) (*FS, error) {
	if c.Conf == nil {
		return nil, hadoopconf.ErrNone
	}
	if c.Conf.Get("hadoop.security.authentication") == "kerberos" {
		return nil, errors.New("HDFS requires Kerberos (hadoop.security.authentication), which tfcluster does not support " +
			"yet: use --backend spark --master yarn, with a --dir that is not on HDFS")
	}
	var err error
	if c.umask, err = c.Conf.Umask(); err != nil {
		return nil, err
	}
	c.Bridge = cmp.Or(c.Bridge, time.Minute)
	c.Stall = cmp.Or(c.Stall, 20*time.Second)
	return &FS{config: c, idle: map[string]*session{}}, nil
}

// Close closes the idle connections.
func (f *FS) Close() error {
	f.mu.Lock()
	idle := f.idle
	f.idle, f.closed = map[string]*session{}, true
	f.mu.Unlock()
	for _, s := range idle {
		s.end()
	}
	return nil
}

// get returns an idle connection to the NameNodes, or a new one.
func (f *FS) get(ctx context.Context, at location) (*session, error) {
	f.mu.Lock()
	s := f.idle[at.key()]
	delete(f.idle, at.key())
	f.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return newSession(ctx, f.config, at.nameNodes)
}

// put keeps a usable connection for the next operation, or closes it.
func (f *FS) put(at location, s *session) {
	f.mu.Lock()
	if !f.closed && f.idle[at.key()] == nil {
		f.idle[at.key()], s = s, nil
	}
	f.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// do runs an operation on one connection and retries it after temporary errors. An operation
// must therefore succeed if a previous attempt already took effect.
func (f *FS) do(ctx context.Context, verb, name string, operation func(s *session, path string) error) error {
	at, err := f.resolve(name)
	if err != nil {
		return err
	}
	return f.retry(ctx, verb, at, func() error { return f.try(ctx, at, operation) })
}

// retry runs a step of an operation until it succeeds. It gives up after another error than a temporary one.
func (f *FS) retry(ctx context.Context, verb string, at location, step func() error) error {
	end := time.Now().Add(f.config.Bridge)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := step()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return f.explain(verb, at, context.Cause(ctx))
		case !temporary(err), time.Now().Add(pause).After(end):
			return f.explain(verb, at, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// try runs an operation once. The end of the context closes the connection.
func (f *FS) try(ctx context.Context, at location, operation func(s *session, path string) error) error {
	s, err := f.get(ctx, at)
	if err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, s.abort)
	err = operation(s, at.path)
	if !unwatch() || (err != nil && !answered(err)) {
		s.end()
		return err
	}
	f.put(at, s)
	return err
}
