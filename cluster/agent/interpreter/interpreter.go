// Package interpreter keeps an executor's Python warm: a zygote that has imported what tasks
// import, from which they are forked. Agents of one host share it.
package interpreter

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/agent/excerpt"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// RewarmPause is the wait before a zygote that died is started again.
const RewarmPause = time.Second

// Interpreter keeps the executor's Python warm.
type Interpreter struct {
	Starter Starter
	log     *slog.Logger
	warmed  func(*clusterpb.Python) // told each time Python is ready or cannot be
	// Bring makes what is wanted ready on this host, for as long as what it returns is open.
	Bring func(context.Context, *clusterpb.WarmUp) (*clusterpb.WarmUp, io.Closer, error)

	keeper sync.WaitGroup

	mu sync.Mutex
	// guarded by mu
	want   *clusterpb.WarmUp
	stop   context.CancelFunc // ends the keeper of want
	zygote *zygote            // nil while there is none
	old    *zygote            // withdrawn, not yet replaced
	python *clusterpb.Python  // nil until it is known
	change chan struct{}      // closed when zygote or python changes
}

// New returns an interpreter that calls warmed each time Python is ready or cannot be.
func New(starter Starter, log *slog.Logger, warmed func(*clusterpb.Python)) *Interpreter {
	return &Interpreter{Starter: starter, log: log, warmed: warmed, change: make(chan struct{})}
}

// Warm makes sure that the Python that is wanted is warm or on its way. It
// returns at once.
func (i *Interpreter) Warm(ctx context.Context, want *clusterpb.WarmUp) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && proto.Equal(i.want, want) {
		return
	}
	i.restart(ctx, want)
}

// PackagePath is where our package is, and whether what is kept ready is a forker, whose own
// environment does not say so.
func (i *Interpreter) PackagePath() (path string, plain bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.Starter.ourPath(i.want), i.want.GetPlain()
}

// Withdraw gives the zygote to no more tasks. Those it has go on; renew follows.
func (i *Interpreter) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.zygote != nil {
		i.old = i.zygote
		i.set(nil, nil)
	}
}

// Renew replaces the zygote that was withdrawn by a fresh one. Tasks it still
// has are ended with it.
func (i *Interpreter) Renew(ctx context.Context) {
	i.mu.Lock()
	old := i.old
	i.old = nil
	i.mu.Unlock()
	if old == nil {
		return
	}
	old.retire(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && i.zygote == nil {
		i.restart(ctx, i.want)
	}
}

// Retry starts the keeper again where it gave up: what Python lacked then, or who
// killed it, may be no more.
func (i *Interpreter) Retry(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && i.zygote == nil && i.python != nil {
		i.restart(ctx, i.want)
	}
}

// restart replaces the keeper. Caller holds mu.
func (i *Interpreter) restart(ctx context.Context, want *clusterpb.WarmUp) {
	if i.stop != nil {
		i.stop()
	}
	ctx, i.stop = context.WithCancel(ctx)
	i.want = want
	i.set(nil, nil)
	i.keeper.Go(func() { i.keep(ctx, want) })
}

// Close ends the zygote's connection and waits.
func (i *Interpreter) Close() {
	i.mu.Lock()
	if i.stop != nil {
		i.stop()
	}
	i.mu.Unlock()
	i.keeper.Wait()
}

// set is called with mu held.
func (i *Interpreter) set(z *zygote, p *clusterpb.Python) {
	i.zygote, i.python = z, p
	close(i.change)
	i.change = make(chan struct{})
}

// keep holds a connection to a zygote until ctx ends, and starts another when
// one dies.
func (i *Interpreter) keep(ctx context.Context, want *clusterpb.WarmUp) {
	asked := want
	want, held, err := i.Bring(ctx, asked)
	if err != nil {
		i.lacks(ctx, asked, err)
		return
	}
	defer held.Close()
	for {
		z, python := i.open(ctx, want)
		if ctx.Err() != nil {
			if z != nil {
				z.Close()
			}
			return
		}
		i.mu.Lock()
		if ctx.Err() == nil {
			i.set(z, python)
		}
		i.mu.Unlock()
		i.warmed(python)
		if z == nil {
			return // cannot be started: the coordinator was told why
		}
		select {
		case <-ctx.Done():
			z.Close()
			return
		case <-z.Gone:
			z.Close()
			killOrphans(z.pid, z.mark)
		}
		i.log.Warn("the zygote died; another is started", "executor", i.Starter.Dir)
		i.mu.Lock()
		if ctx.Err() == nil {
			i.set(nil, nil)
		}
		i.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(RewarmPause):
		}
	}
}

// lacks tells that there is no Python for what is wanted.
func (i *Interpreter) lacks(ctx context.Context, want *clusterpb.WarmUp, err error) {
	if ctx.Err() != nil {
		return
	}
	python := &clusterpb.Python{Executable: want.GetPython(), Error: err.Error()}
	i.mu.Lock()
	if ctx.Err() == nil {
		i.set(nil, python)
	}
	i.mu.Unlock()
	i.warmed(python)
}

// open connects to a zygote and waits for its imports. The description says
// what is wrong when there is no zygote.
func (i *Interpreter) open(ctx context.Context, want *clusterpb.WarmUp) (*zygote, *clusterpb.Python) {
	failed := func(err error) *clusterpb.Python {
		return &clusterpb.Python{Executable: want.GetPython(), Error: err.Error()}
	}
	for {
		z, started, err := i.Starter.connect(ctx, want)
		if err != nil {
			return nil, failed(fmt.Errorf("%s cannot be started: %w", starts(want), err))
		}
		python, err := z.WaitReady(ctx)
		if err == nil {
			return z, python
		}
		z.Close()
		if started || ctx.Err() != nil {
			return nil, failed(fmt.Errorf("%s ended while it imported TensorFlow: %s", want.GetPython(), excerpt.LastLine(i.Starter.logFile(want))))
		}
		// It was ending when this agent came: the next one is started here.
	}
}

// Current returns the zygote and what it was wanted for, waiting while it warms up.
func (i *Interpreter) Current(ctx context.Context) (*zygote, *clusterpb.WarmUp, error) {
	for {
		i.mu.Lock()
		z, python, change, want := i.zygote, i.python, i.change, i.want
		i.mu.Unlock()
		switch {
		case z != nil:
			return z, want, nil
		case python != nil:
			return nil, nil, fmt.Errorf("no Python: %s", python.GetError())
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-change:
		}
	}
}

// Environment is what this agent's tasks begin with: what its zygote would have been
// started with, if it was another agent that started it.
func (i *Interpreter) Environment(want *clusterpb.WarmUp) map[string]string {
	env := map[string]string{}
	for _, entry := range zygoteEnv(os.Environ(), want.GetEnv(), i.Starter.searchPath(want)) {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value // the last one counts, as exec.Cmd has it
	}
	return env
}

// Imported is what a zygote's imports saw of the variables that matter to them.
func (i *Interpreter) Imported(want *clusterpb.WarmUp) map[string]string {
	env := map[string]string{"TF_CPP_MIN_LOG_LEVEL": "1"}
	for k := range importTime {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	maps.Copy(env, want.GetEnv())
	if ours := i.Starter.searchPath(want); ours != "" {
		env[pythonPath] = searching(ours, env[pythonPath])
	}
	return env
}

// Describe is the Python there is, or nil while it warms up.
func (i *Interpreter) Describe() *clusterpb.Python {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.python
}
