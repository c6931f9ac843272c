package result

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// TestSteps: an error that ends with a cause of the system says what to do, once, and one that says so itself stays.
func TestSteps(t *testing.T) {
	t.Parallel()
	full := &os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			fmt.Errorf("record the run: %w", full),
			"record the run: write /x: no space left on device; free space, or file entries (df -i), on that disk",
		},
		{
			&ClusterError{Text: full.Error()},
			"write /x: no space left on device; free space, or file entries (df -i), on that disk",
		},
		{&ClusterError{Text: full.Error(), Remedy: "use --dir"}, "write /x: no space left on device; use --dir"},
		{fmt.Errorf("%w; set TMPDIR", full), "write /x: no space left on device; set TMPDIR"},
		{errors.New("bad"), "bad"},
		{
			errors.New("read unix @->/run/x/control.sock: i/o timeout"), "read unix @->/run/x/control.sock: i/o timeout; " +
				"the other process on this host is busy or stopped: repeat the command",
		},
		{
			errors.New("dial tcp 10.0.0.1:80: i/o timeout"),
			"dial tcp 10.0.0.1:80: i/o timeout; check the address and the network between the hosts",
		},
	} {
		r := NewReport(c.err)
		if r.Value != c.want || r.Lines[0] != "ClusterError: "+c.want {
			t.Errorf("%v: %q, %q", c.err, r.Value, r.Lines)
		}
	}
	for _, errno := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.EMFILE, syscall.ENOMEM,
		syscall.EAGAIN, syscall.EIO, syscall.ENOENT, syscall.EEXIST, syscall.ENOTDIR, syscall.EISDIR, syscall.ECONNREFUSED,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT, syscall.ECONNRESET, syscall.EPIPE,
	} {
		if text := errtext.WithRemedy("x: " + errno.Error()); !strings.Contains(text, "; ") {
			t.Errorf("no step for %q", text)
		}
	}
}
