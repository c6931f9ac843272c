package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// Config is what New needs.
type Config struct {
	Conf *hadoopconf.Conf
	User string // of simple authentication; hadoopconf.User gives it
	// Bridge is how long an operation tries again where HDFS is away for a while:
	// a minute if zero.
	Bridge time.Duration
	// Stall is how long one read or write may stand still: 20 s if zero.
	Stall time.Duration

	umask fs.FileMode // Conf's, set by New
}

// FS gives access to the files of the configuration's HDFS and of others by URI.
type FS struct {
	config Config

	mu sync.Mutex
	// Guarded by mu: a connection kept for the next operation, by its NameNodes.
	idle   map[string]*session
	closed bool
}

// New is an FS. It connects when it is used; Close ends what it keeps.
func New(c Config) (*FS, error) {
	if c.Conf == nil {
		return nil, hadoopconf.ErrNone
	}
	if c.Conf.Get("hadoop.security.authentication") == "kerberos" {
		return nil, errors.New("HDFS asks for Kerberos (hadoop.security.authentication), which tfcluster does not know yet")
	}
	if c.User == "" {
		return nil, errors.New("HDFS needs a user's name")
	}
	var err error
	if c.umask, err = c.Conf.Umask(); err != nil {
		return nil, err
	}
	if c.Bridge == 0 {
		c.Bridge = time.Minute
	}
	if c.Stall == 0 {
		c.Stall = 20 * time.Second
	}
	return &FS{config: c, idle: map[string]*session{}}, nil
}

// Close ends the connections that no operation uses.
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

// take gives a connection to the NameNodes to one operation.
func (f *FS) take(ctx context.Context, at location) (*session, error) {
	f.mu.Lock()
	s := f.idle[at.key()]
	delete(f.idle, at.key())
	f.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return newSession(ctx, f.config, at.nameNodes)
}

// give takes a connection back whose operation went well.
func (f *FS) give(at location, s *session) {
	f.mu.Lock()
	if !f.closed && f.idle[at.key()] == nil {
		f.idle[at.key()], s = s, nil
	}
	f.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// do runs an operation on one connection, again while HDFS is only away for a while.
// An operation may therefore find done what it is to do.
func (f *FS) do(ctx context.Context, verb, name string, operation func(s *session, path string) error) error {
	at, err := f.resolve(name)
	if err != nil {
		return err
	}
	end := time.Now().Add(f.config.Bridge)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := f.try(ctx, at, operation)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return f.explain(verb, at, context.Cause(ctx))
		}
		if !passing(err) || time.Now().Add(pause).After(end) {
			return f.explain(verb, at, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// try runs an operation once. The context's end closes its connections.
func (f *FS) try(ctx context.Context, at location, operation func(s *session, path string) error) error {
	s, err := f.take(ctx, at)
	if err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, s.abort)
	err = operation(s, at.path)
	if !unwatch() || (err != nil && !refused(err)) {
		s.end()
		return err
	}
	f.give(at, s)
	return err
}
