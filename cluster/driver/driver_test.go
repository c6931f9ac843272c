package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// lost is an engine that has nothing to take up.
type lost struct{ why error }

func (l lost) Allocate(context.Context, cluster.Request) (cluster.Allocation, error) {
	return nil, l.why
}

func (l lost) Recover(context.Context, cluster.Request, []byte) (cluster.Allocation, error) {
	return nil, l.why
}

// TestEngineAway: a driver whose engine does not answer leaves the cluster to another one.
func TestEngineAway(t *testing.T) {
	for _, c := range []struct {
		why   error
		stays bool
	}{
		{fmt.Errorf("no answer: %w", cluster.ErrEngineAway), true},
		{errors.New("no such application"), false},
	} {
		home, err := os.MkdirTemp("/tmp", "tfcluster-driver-test") // sockets' paths are short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(home) })
		t.Setenv("TFCLUSTER_HOME", home)
		t.Setenv("XDG_RUNTIME_DIR", home)
		saved := earlier(t)
		input, err := json.Marshal(state.DriverInput{Request: saved.Request, State: saved})
		if err != nil {
			t.Fatal(err)
		}
		stdin, ready := io.Pipe()
		go func() {
			_, err := ready.Write(input)
			ready.CloseWithError(err)
		}()
		err = driver.Main(t.Context(), driver.Options{Engines: cluster.Engines{{Name: "lost", Backend: lost{c.why}}}},
			stdin, silent{})
		if !errors.Is(err, c.why) {
			t.Errorf("it ended with %v, want %v", err, c.why)
		}
		left, err := state.Load(saved.Name)
		if stays := err == nil && string(left.Saved) == string(saved.Saved); stays != c.stays {
			t.Errorf("%v: the state stays %v: %v", c.why, left != nil, err)
		}
	}
}

// silent takes the driver's word.
type silent struct{}

func (silent) Write(b []byte) (int, error) { return len(b), nil }
func (silent) Close() error                { return nil }

// earlier is the state that a driver left which has ended.
func earlier(t *testing.T) *state.State {
	t.Helper()
	authority, err := auth.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	process := state.ProcessOf(ended.Process.Pid)
	if err := ended.Wait(); err != nil {
		t.Fatal(err)
	}
	dir, err := state.Dir("c")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &state.State{
		Name: "c", Backend: "lost", Dir: t.TempDir(), Address: "127.0.0.1:0", CertPEM: string(authority.CertPEM),
		KeyPEM: string(authority.KeyPEM), Driver: process, Saved: []byte(`"token"`),
		Request: fmt.Appendf(nil, `{"name":"c","backend":"lost","dir":%q,"roles":[{"name":"worker","count":1}]}`,
			t.TempDir()),
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	return s
}
