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
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// lockWait is how long a second driver waits for the first one's state, so that the process
// that started it finds the first driver.
const lockWait = 5 * time.Second

// LockDriver locks a cluster for its only driver, until the result is closed or the process
// ends. Two drivers may start at the same time for two reserves with the same name, or for two
// clients that attach to a cluster whose driver died.
func LockDriver(ctx context.Context, name string) (io.Closer, error) {
	dir, err := Dir(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "driver.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the folder of cluster %s cannot be locked: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := lockfile.Try(f, lockfile.Exclusive)
		if err == nil && lockfile.IsCurrent(f) {
			return f, nil
		}
		switch {
		case err == nil:
			err = fmt.Errorf("another command has just removed cluster %s; repeat the command", name)
		case !errors.Is(err, lockfile.ErrHeld):
			err = fmt.Errorf("the folder of cluster %s cannot be locked: %w; set TFCLUSTER_HOME to a folder on a local disk",
				name, err)
		case driverLives(name):
			err = &NameTaken{name}
		case ctx.Err() != nil:
			err = fmt.Errorf("another driver of cluster %s is starting: repeat the command in a moment", name)
		default: // a killed driver holds the lock until all its threads have ended
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		_ = f.Close() // the error of the lock is returned
		return nil, err
	}
}

func driverLives(name string) bool {
	s, err := Load(name)
	return err == nil && s.Driver.Alive()
}

// NameTaken is the error of a name that a cluster with a driver has.
type NameTaken struct{ Name string }

// Error implements error.
func (e *NameTaken) Error() string {
	return fmt.Sprintf("a cluster named %s already exists: attach to it, shut it down, or choose another --name", e.Name)
}

// ClaimName creates the cluster's folder, which reserves its name. An empty name is replaced by
// the backend and the first free number.
func ClaimName(name, backend string) (string, error) {
	home, err := Home()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", fmt.Errorf("create the state folder: %w; set TFCLUSTER_HOME to a writable folder", err)
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
					return "", &NameTaken{name}
				}
				return "", fmt.Errorf(
					"the driver of cluster %s died: attach or reset starts a new driver for it, shutdown removes it", name)
			}
			return name, nil // left by a driver that ended before it wrote its state
		}
		if err != nil {
			return "", fmt.Errorf("make the cluster's folder: %w; set TFCLUSTER_HOME to a writable folder", err)
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
			return "", fmt.Errorf("make the cluster's folder: %w; set TFCLUSTER_HOME to a writable folder", err)
		}
	}
	return "", errors.New("this host has records of 10,000 clusters: status --all lists them, shutdown removes them")
}
