package yarn

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// SaveState keeps the driver's state where the next attempt finds it.
func (a *Attempt) SaveState(state []byte) {
	a.mu.Lock()
	a.state = state
	a.given++
	a.mu.Unlock()
	a.rouse()
}

// SaveStart keeps how the active run was started beside the state.
func (a *Attempt) SaveStart(start []byte) {
	a.mu.Lock()
	a.start = start
	a.given++
	a.mu.Unlock()
	a.rouse()
}

// LoadStart returns what an earlier attempt kept of the run's start; nil if there was none.
func (a *Attempt) LoadStart(ctx context.Context) ([]byte, error) {
	if a.number == 1 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	b, err := a.store.Read(ctx, a.folder()+"/"+startFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Flush waits until what SaveState was given before is kept.
func (a *Attempt) Flush(ctx context.Context) error {
	a.mu.Lock()
	given := a.given
	for a.kept < given {
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

func (a *Attempt) rouse() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// keepPause is between two times to keep what HDFS refused.
const keepPause = 5 * time.Second

// keep writes what is to be kept, the newest alone, until Close.
func (a *Attempt) keep() {
	touch := time.NewTicker(cacheAge / 4)
	defer touch.Stop()
	for {
		a.mu.Lock()
		state, start, address, gone, given := a.state, a.start, a.address, a.gone, a.given
		a.state, a.start, a.address = nil, nil, ""
		a.mu.Unlock()
		err := a.write(map[string][]byte{stateFile: state, startFile: start, addressFile: []byte(address)})
		if err == nil {
			a.mu.Lock()
			a.kept = given
			close(a.written)
			a.written = make(chan struct{})
			a.mu.Unlock()
		}
		if err != nil && !gone && a.ctx.Err() == nil {
			a.log.Warn("what the next attempt must know could not be kept; it is tried again", "err", err)
			a.mu.Lock()
			if a.state == nil {
				a.state = state
			}
			if a.start == nil {
				a.start = start
			}
			if a.address == "" {
				a.address = address
			}
			a.mu.Unlock()
			select {
			case <-a.ctx.Done():
			case <-time.After(keepPause):
				a.rouse()
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

// write keeps what is new by the names of its files.
func (a *Attempt) write(files map[string][]byte) error {
	maps.DeleteFunc(files, func(_ string, content []byte) bool { return len(content) == 0 })
	if len(files) == 0 {
		return nil
	}
	if err := a.store.MakePrivate(a.ctx, a.folder()); err != nil {
		return err
	}
	for name, content := range files {
		a.mu.Lock()
		gone := a.gone
		a.mu.Unlock()
		if gone {
			return nil
		}
		if err := a.store.Write(a.ctx, a.folder()+"/"+name, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return nil
}

// touch has others' cleaning leave what is in use.
func (a *Attempt) touch() {
	a.mu.Lock()
	used := slices.Collect(maps.Keys(a.used))
	a.mu.Unlock()
	for _, digest := range used {
		if err := a.store.Touch(a.ctx, folderOf(digest), time.Now()); err != nil {
			a.log.Warn("what was given may be cleaned from HDFS", "err", err)
		}
	}
}
