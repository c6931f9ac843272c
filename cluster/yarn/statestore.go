package yarn

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// SaveState queues the driver's state to be written to HDFS for the next attempt.
func (a *Attempt) SaveState(state []byte) {
	a.mu.Lock()
	a.state = state
	a.saves++
	a.mu.Unlock()
	a.wakeStore()
}

// SaveStart queues the start request of a run to be written beside the state.
func (a *Attempt) SaveStart(start []byte) {
	a.mu.Lock()
	a.start = start
	a.saves++
	a.mu.Unlock()
	a.wakeStore()
}

// LoadStart returns the start request that an earlier attempt stored, or nil if there is none.
func (a *Attempt) LoadStart(ctx context.Context) ([]byte, error) {
	return a.readSaved(ctx, startFile)
}

// Flush waits until the state of the last SaveState or SaveStart is on HDFS.
func (a *Attempt) Flush(ctx context.Context) error {
	a.mu.Lock()
	saves := a.saves
	for a.stored < saves {
		written := a.written
		a.mu.Unlock()
		select {
		case <-written:
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
		a.mu.Lock()
	}
	a.mu.Unlock()
	return nil
}

// wakeStore makes storeLoop look for unsaved state.
func (a *Attempt) wakeStore() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// storeRetry is the delay after a failed write.
const storeRetry = 5 * time.Second

// storeLoop writes the newest unsaved state and address until Close.
func (a *Attempt) storeLoop() {
	touch := time.NewTicker(cacheAge / 4)
	defer touch.Stop()
	for {
		a.mu.Lock()
		state, start, address, gone, saves := a.state, a.start, a.address, a.gone, a.saves
		a.state, a.start, a.address = nil, nil, ""
		a.mu.Unlock()
		// The start first: a state of a run without its start would keep the run from being restarted.
		err := a.write([]savedFile{{startFile, start}, {stateFile, state}, {addressFile, []byte(address)}})
		if err == nil {
			a.mu.Lock()
			a.stored = saves
			close(a.written)
			a.written = make(chan struct{})
			a.mu.Unlock()
		}
		if err != nil && !gone && a.ctx.Err() == nil {
			a.log.Warn("cannot save the state for the next attempt; retrying", "err", err)
			a.mu.Lock()
			if a.state == nil {
				a.state = state
			}
			if a.start == nil {
				a.start = start
			}
			a.address = cmp.Or(a.address, address)
			a.mu.Unlock()
			select {
			case <-a.ctx.Done():
			case <-time.After(storeRetry):
				a.wakeStore()
			}
		}
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
		case <-touch.C:
			a.touch()
		}
	}
}

// savedFile is a file for the next attempt.
type savedFile struct {
	name    string
	content []byte
}

// write writes the files that have content, in their order.
func (a *Attempt) write(files []savedFile) error {
	files = slices.DeleteFunc(files, func(f savedFile) bool { return len(f.content) == 0 })
	if len(files) == 0 {
		return nil
	}
	if err := a.store.MakePrivate(a.ctx, a.folder()); err != nil {
		return err
	}
	for _, f := range files {
		a.mu.Lock()
		gone := a.gone
		a.mu.Unlock()
		if gone {
			return nil
		}
		if err := a.store.Write(a.ctx, a.folder()+"/"+f.name, bytes.NewReader(f.content)); err != nil {
			return err
		}
	}
	return nil
}

// touch renews the artifacts in use, so that other drivers do not clean them up.
func (a *Attempt) touch() {
	a.mu.Lock()
	used := slices.Collect(maps.Keys(a.used))
	a.mu.Unlock()
	for _, digest := range used {
		if err := a.store.Touch(a.ctx, cacheFolder(digest), time.Now()); err != nil {
			a.log.Warn("cannot renew an artifact on HDFS; it may be cleaned up", "err", err)
		}
	}
}
