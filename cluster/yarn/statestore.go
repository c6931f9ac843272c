package yarn

import (
	"bytes"
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

// Flush waits until the state of the last SaveState is on HDFS.
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
		state, address, gone, saves := a.state, a.address, a.gone, a.saves
		a.state, a.address = nil, ""
		a.mu.Unlock()
		err := a.write(state, address)
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
			if a.address == "" {
				a.address = address
			}
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

func (a *Attempt) write(state []byte, address string) error {
	if len(state)+len(address) == 0 {
		return nil
	}
	if err := a.store.MakePrivate(a.ctx, a.folder()); err != nil {
		return err
	}
	for name, content := range map[string][]byte{stateFile: state, addressFile: []byte(address)} {
		a.mu.Lock()
		gone := a.gone
		a.mu.Unlock()
		if len(content) == 0 || gone {
			continue
		}
		if err := a.store.Write(a.ctx, a.folder()+"/"+name, bytes.NewReader(content)); err != nil {
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
