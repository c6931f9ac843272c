package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

// claimWait is how long a driver that comes second waits for the first one's state, so
// that whoever started it finds the first.
const claimWait = 5 * time.Second

// LockDriver makes the caller the one driver of a cluster, until it closes what it is
// given or ends, however it ends. Two reserves of one name, or two that attach to a
// cluster whose driver died, start a driver each.
func LockDriver(ctx context.Context, name string) (io.Closer, error) {
	dir, err := Dir(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "driver.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim cluster %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	for {
		err := lockfile.Try(f, lockfile.Exclusive)
		if err == nil && !lockfile.IsCurrent(f) { // a cluster that was forgotten in that moment took its folder along
			err = errors.New("its folder was removed meanwhile")
		}
		if err == nil {
			return f, nil
		}
		switch {
		case !errors.Is(err, lockfile.ErrHeld):
			err = fmt.Errorf("claim cluster %s: %w", name, err)
		case driverLives(name):
			err = nameTaken(name)
		case ctx.Err() != nil:
			err = fmt.Errorf("claim cluster %s: another driver of it is starting", name)
		default: // a driver that was killed holds it until all its threads have ended
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		_ = f.Close() // the error to tell is the lock's
		return nil, err
	}
}

func driverLives(name string) bool {
	s, err := Load(name)
	return err == nil && s.Driver.Alive()
}

func nameTaken(name string) error {
	return fmt.Errorf("a cluster named %s lives already: attach to it, shut it down, or choose another --name", name)
}

// ClaimName makes the cluster's folder, which is the claim to its name.
func ClaimName(name, backend string) (string, error) {
	home, err := Home()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", fmt.Errorf("make the state folder: %w; set TFCLUSTER_HOME to one that can be written", err)
	}
	if name != "" {
		if err := cluster.CheckName(name); err != nil {
			return "", err
		}
		dir := filepath.Join(home, name)
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, os.ErrExist) {
			if s, lerr := Load(name); lerr == nil {
				if s.Driver.Alive() {
					return "", nameTaken(name)
				}
				return "", fmt.Errorf("the driver of cluster %s died: attach or reset takes it up again, shutdown removes it", name)
			}
			return name, nil // a folder that a driver left before it had a state
		}
		if err != nil {
			return "", fmt.Errorf("make the cluster's folder: %w", err)
		}
		return name, nil
	}
	for i := 1; i < 10_000; i++ {
		name := fmt.Sprintf("%s-%d", backend, i)
		err := os.Mkdir(filepath.Join(home, name), 0o700)
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("make the cluster's folder: %w", err)
		}
	}
	return "", errors.New("10,000 clusters are known on this host: status --all lists them, shutdown removes them")
}
