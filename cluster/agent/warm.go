package agent

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

// rewarmPause is the wait before a zygote that died is started again.
const rewarmPause = time.Second

// interpreter keeps the executor's Python warm.
type interpreter struct {
	starter zygoteStarter
	log     *slog.Logger
	warmed  func(*clusterpb.Python) // told each time Python is ready or cannot be
	// bring makes what is wanted ready on this host, for as long as what it returns is open.
	bring func(context.Context, *clusterpb.WarmUp) (*clusterpb.WarmUp, io.Closer, error)

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

func newInterpreter(starter zygoteStarter, log *slog.Logger, warmed func(*clusterpb.Python)) *interpreter {
	return &interpreter{starter: starter, log: log, warmed: warmed, change: make(chan struct{})}
}

// warm makes sure that the Python that is wanted is warm or on its way. It
// returns at once.
func (i *interpreter) warm(ctx context.Context, want *clusterpb.WarmUp) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && proto.Equal(i.want, want) {
		return
	}
	i.restart(ctx, want)
}

// ourPath is where our package is, and whether what is kept ready is a forker, whose own
// environment does not say so.
func (i *interpreter) ourPath() (path string, plain bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.starter.ourPath(i.want), i.want.GetPlain()
}

// withdraw gives the zygote to no more tasks. Those it has go on; renew follows.
func (i *interpreter) withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.zygote != nil {
		i.old = i.zygote
		i.set(nil, nil)
	}
}

// renew replaces the zygote that was withdrawn by a fresh one. Tasks it still
// has are ended with it.
func (i *interpreter) renew(ctx context.Context) {
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

// retry starts the keeper again where it gave up: what Python lacked then, or who
// killed it, may be no more.
func (i *interpreter) retry(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && i.zygote == nil && i.python != nil {
		i.restart(ctx, i.want)
	}
}

// restart replaces the keeper. Caller holds mu.
func (i *interpreter) restart(ctx context.Context, want *clusterpb.WarmUp) {
	if i.stop != nil {
		i.stop()
	}
	ctx, i.stop = context.WithCancel(ctx)
	i.want = want
	i.set(nil, nil)
	i.keeper.Go(func() { i.keep(ctx, want) })
}

// close ends the zygote's connection and waits.
func (i *interpreter) close() {
	i.mu.Lock()
	if i.stop != nil {
		i.stop()
	}
	i.mu.Unlock()
	i.keeper.Wait()
}

// set is called with mu held.
func (i *interpreter) set(z *zygote, p *clusterpb.Python) {
	i.zygote, i.python = z, p
	close(i.change)
	i.change = make(chan struct{})
}

// keep holds a connection to a zygote until ctx ends, and starts another when
// one dies.
func (i *interpreter) keep(ctx context.Context, want *clusterpb.WarmUp) {
	asked := want
	want, held, err := i.bring(ctx, asked)
	if err != nil {
		i.lacks(ctx, asked, err)
		return
	}
	defer held.Close()
	for {
		z, python := i.open(ctx, want)
		if ctx.Err() != nil {
			if z != nil {
				z.close()
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
			z.close()
			return
		case <-z.gone:
			z.close()
			killOrphans(z.pid, z.mark)
		}
		i.log.Warn("the zygote died; another is started", "executor", i.starter.dir)
		i.mu.Lock()
		if ctx.Err() == nil {
			i.set(nil, nil)
		}
		i.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(rewarmPause):
		}
	}
}

// lacks tells that there is no Python for what is wanted.
func (i *interpreter) lacks(ctx context.Context, want *clusterpb.WarmUp, err error) {
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
func (i *interpreter) open(ctx context.Context, want *clusterpb.WarmUp) (*zygote, *clusterpb.Python) {
	failed := func(err error) *clusterpb.Python {
		return &clusterpb.Python{Executable: want.GetPython(), Error: err.Error()}
	}
	for {
		z, started, err := i.starter.connect(ctx, want)
		if err != nil {
			return nil, failed(fmt.Errorf("%s cannot be started: %w", starts(want), err))
		}
		python, err := z.waitReady(ctx)
		if err == nil {
			return z, python
		}
		z.close()
		if started || ctx.Err() != nil {
			return nil, failed(fmt.Errorf("%s ended while it imported TensorFlow: %s", want.GetPython(), excerpt.LastLine(i.starter.logFile(want))))
		}
		// It was ending when this agent came: the next one is started here.
	}
}

// current returns the zygote and what it was wanted for, waiting while it warms up.
func (i *interpreter) current(ctx context.Context) (*zygote, *clusterpb.WarmUp, error) {
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

// environment is what this agent's tasks begin with: what its zygote would have been
// started with, if it was another agent that started it.
func (i *interpreter) environment(want *clusterpb.WarmUp) map[string]string {
	env := map[string]string{}
	for _, entry := range zygoteEnv(os.Environ(), want.GetEnv(), i.starter.searchPath(want)) {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value // the last one counts, as exec.Cmd has it
	}
	return env
}

// imported is what a zygote's imports saw of the variables that matter to them.
func (i *interpreter) imported(want *clusterpb.WarmUp) map[string]string {
	env := map[string]string{"TF_CPP_MIN_LOG_LEVEL": "1"}
	for k := range importTime {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	maps.Copy(env, want.GetEnv())
	if ours := i.starter.searchPath(want); ours != "" {
		env[pythonPath] = searching(ours, env[pythonPath])
	}
	return env
}

// describe is the Python there is, or nil while it warms up.
func (i *interpreter) describe() *clusterpb.Python {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.python
}
