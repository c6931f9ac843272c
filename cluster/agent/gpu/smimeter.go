package gpu

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/internal/excerpt"
)

// maxSMILine bounds a line of nvidia-smi.
const maxSMILine = 4 << 10

// measure reads the lines of one nvidia-smi that prints each interval. It returns when that has ended.
func (l smiLister) measure(ctx context.Context, every time.Duration, wanted func(int, string) bool,
	report func(int, string, int32, uint64),
) error {
	path, err := l.find()
	if err != nil {
		return err
	}
	// The signal of Pdeathsig is sent when the forking thread ends, so that waits for its child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, "--query-gpu=uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits",
		"-l", strconv.Itoa(max(1, int(every.Seconds()))))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what a wrapper has started
	cmd.WaitDelay = smiDelay
	said := &firstBytes{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("measure the GPUs: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("measure the GPUs: %w", err)
	}
	odd, err := readSMI(bufio.NewScanner(out), wanted, report)
	if err != nil {
		_ = cmd.Cancel() // it may have ended
	}
	ended := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	printed := excerpt.OneLine(odd + " " + said.String())
	if printed != "" {
		printed = fmt.Sprintf(", after it printed %q", printed)
	}
	return fmt.Errorf("measure the GPUs: %s -l, which prints until it is killed, has ended (%w)%s; "+
		"see what that command prints on this host", path, cmp.Or(err, ended, errEnded), printed)
}

// errEnded: nvidia-smi ended without an error.
var errEnded = errors.New("exit status 0")

// readSMI reports the wanted GPUs of lines until their end. odd is the last line that is none, such as an error.
func readSMI(lines *bufio.Scanner, wanted func(int, string) bool,
	report func(int, string, int32, uint64),
) (odd string, err error) {
	lines.Buffer(nil, maxSMILine)
	for lines.Scan() {
		uuid, percent, used, ok := parseSMILine(lines.Text())
		switch {
		case !ok:
			odd = lines.Text()
		case wanted(-1, uuid):
			report(-1, uuid, percent, used)
		}
	}
	return odd, lines.Err()
}

// parseSMILine parses "GPU-5f1c…, 42, 426": UUID, percent, MiB. Values that a GPU does not report, such
// as [N/A], are 0.
func parseSMILine(line string) (uuid string, percent int32, used uint64, ok bool) {
	fields := strings.Split(line, ",")
	if len(fields) != 3 {
		return "", 0, 0, false
	}
	uuid = strings.TrimSpace(fields[0])
	if uuid == "" || strings.ContainsAny(uuid, " \t") {
		return "", 0, 0, false
	}
	return uuid, int32(min(amount(fields[1], ""), 100)), amount(fields[2], "") << 20, true
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *firstBytes) Write(p []byte) (int, error) {
	if room := excerpt.MaxLastLine - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
