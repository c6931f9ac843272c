package gpu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

var quiet = slog.New(slog.DiscardHandler)

func TestParseSMILine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{"GPU-5f1c, 42, 426", "GPU-5f1c 42 446693376 true"},
		{"GPU-5f1c,100,0", "GPU-5f1c 100 0 true"},
		{"GPU-5f1c, 4000, 1", "GPU-5f1c 100 1048576 true"},
		{"GPU-5f1c, [N/A], [Not Supported]", "GPU-5f1c 0 0 true"},
		{"GPU-5f1c, -3, 99999999999999999999999", "GPU-5f1c 0 0 true"},
		{"", " 0 0 false"},
		{"No devices were found", " 0 0 false"},
		{"Unable to determine the device, of, it", " 0 0 false"},
		{"GPU-5f1c, 42", " 0 0 false"},
		{", 42, 426", " 0 0 false"},
		{"NVIDIA-SMI has failed because it, could,", " 0 0 false"},
	} {
		uuid, percent, used, ok := parseSMILine(tt.line)
		if got := fmt.Sprint(uuid, " ", percent, " ", used, " ", ok); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.line, got, tt.want)
		}
	}
}

func FuzzReadSMI(f *testing.F) {
	f.Add([]byte("GPU-5f1c, 42, 426\nGPU-77ab, [N/A], 3\n"))
	f.Add([]byte("NVIDIA-SMI has failed\r\n\xff, 1, 2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := readSMI(bufio.NewScanner(bytes.NewReader(text)), func(int, string) bool { return true },
			func(_ int, uuid string, percent int32, _ uint64) {
				if uuid == "" || strings.ContainsAny(uuid, " ,\n") || percent < 0 || percent > 100 {
					t.Errorf("GPU %q, %d %%", uuid, percent)
				}
			})
		if err != nil && !errors.Is(err, bufio.ErrTooLong) {
			t.Error(err)
		}
	})
}

// until waits for something with a deadline.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in a minute it was not so: %s", what)
		}
	}
}

// running starts a Meter and returns a function that ends it.
func running(t *testing.T, m *Meter) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the meter does not end")
		}
	}
}

// smiThatPrints is a nvidia-smi that writes its pid to a file, checks its arguments and prints until it is killed.
func smiThatPrints(t *testing.T, pids, rest string) smiLister {
	t.Helper()
	return writeSMI(t, "echo $$ >> "+pids+`
[ "$*" = "--query-gpu=uuid,utilization.gpu,memory.used --format=csv,noheader,nounits -l 2" ] || exit 7
`+rest)
}

// pidsIn are the pids of the nvidia-smis so far.
func pidsIn(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Fields(string(text))
}

func alive(pid string) bool {
	n, _ := strconv.Atoi(pid)
	return syscall.Kill(n, 0) == nil
}

func oneGPU(m *Meter) string {
	last := m.Last()
	if len(last) != 1 {
		return fmt.Sprint(len(last), " GPUs")
	}
	return fmt.Sprintf("%s %d %d", last[0].GetUuid(), last[0].GetUtilization(), last[0].GetUsedBytes()>>20)
}

// TestMeterByProgram: one nvidia-smi measures, lines of other GPUs are ignored; one that ends is started again after a
// pause; the last one ends with the meter.
func TestMeterByProgram(t *testing.T) {
	noSMIOnPath(t)
	pids := filepath.Join(t.TempDir(), "pids")
	s := smiThatPrints(t, pids, `
n=$(wc -l < `+pids+`)
while :; do
	echo "GPU-other, 99, 99"
	echo "GPU-held, $n, 426"
	[ $n = 1 ] && exit 3
	sleep 0.05
done`)
	m := newMeter([]*clusterpb.GPU{{Uuid: "GPU-held"}}, libraryOrProgramSource{noDriverSource{}, s}, quiet)
	m.pause = time.Millisecond
	end := running(t, m)
	until(t, "the second nvidia-smi is read", func() bool { return oneGPU(m) == "GPU-held 2 426" })
	until(t, "it goes on", func() bool { return oneGPU(m) == "GPU-held 2 426" })
	end()
	started := pidsIn(pids)
	if len(started) != 2 {
		t.Errorf("nvidia-smi was started %d times", len(started))
	}
	for _, pid := range started {
		if alive(pid) {
			t.Errorf("nvidia-smi %s has outlived the meter", pid)
		}
	}
}

// noDriverSource is a library that is not there.
type noDriverSource struct{}

func (noDriverSource) measure(context.Context, time.Duration, func(int, string) bool,
	func(int, string, int32, uint64),
) error {
	return fmt.Errorf("%w: no library", errNoDriver)
}

// TestProgramThatFails: the error says what nvidia-smi said; it ends at a line without an end.
func TestProgramThatFails(t *testing.T) {
	noSMIOnPath(t)
	for want, script := range map[string]string{
		"has ended (exit status 9), after it printed \"NVIDIA-SMI has failed\"; see what": "echo; echo 'NVIDIA-SMI has " +
			"failed'; exit 9",
		"has ended (exit status 1), after it printed \"cannot open libnvidia\"; see what": "echo cannot open libnvidia " +
			">&2; exit 1",
		"has ended (exit status 0); see what that command prints on this host": "exit 0",
		"token too long": "while :; do printf aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
	} {
		err := writeSMI(t, script).measure(t.Context(), time.Second, func(int, string) bool { return true },
			func(int, string, int32, uint64) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	m := newMeter(someGPUs(), libraryOrProgramSource{noDriverSource{}, smiLister{[]string{"/nonexistent"}}}, quiet)
	m.Run(t.Context()) // ends: there is nothing to measure with
}

// meterVariable makes a process of this test run a Meter.
const meterVariable = "TFCLUSTER_TEST_METER"

// TestMeterProcess is no test of its own: it measures until it is killed.
func TestMeterProcess(t *testing.T) {
	dir := os.Getenv(meterVariable)
	if dir == "" {
		t.Skip("it is run by TestProgramEndsWithTheAgent")
	}
	newMeter(someGPUs(), smiLister{[]string{dir}}, quiet).Run(t.Context())
}

// TestProgramEndsWithTheAgent: nvidia-smi ends when its agent is killed.
func TestProgramEndsWithTheAgent(t *testing.T) {
	noSMIOnPath(t)
	pids := filepath.Join(t.TempDir(), "pids")
	s := smiThatPrints(t, pids, "exec sleep 1000")
	agent := exec.Command(os.Args[0], "-test.run", "^TestMeterProcess$")
	agent.Env = append(os.Environ(), meterVariable+"="+s.fallbackDirs[0])
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "nvidia-smi runs", func() bool { return len(pidsIn(pids)) == 1 })
	_ = agent.Process.Kill()
	_ = agent.Wait() // killed
	until(t, "nvidia-smi has ended", func() bool { return !alive(pidsIn(pids)[0]) })
}

// scripted reports once, then hangs although ctx ends, until it is released.
type scripted struct{ release chan struct{} }

func (s scripted) measure(_ context.Context, _ time.Duration, _ func(int, string) bool,
	report func(int, string, int32, uint64),
) error {
	report(1, "GPU-0123456789abcdef", 7, 1<<20)
	report(2, "GPU-b", 8, 2<<20)
	<-s.release
	return nil
}

// TestMeterOfADriverThatHangs: old measurements are not reported, and the end does not wait for the driver.
func TestMeterOfADriverThatHangs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"1", "GPU-01234567", "GPU-0123456789abcdef"} {
		synctest.Test(t, func(t *testing.T) {
			s := scripted{make(chan struct{})}
			defer close(s.release)
			m := newMeter([]*clusterpb.GPU{{Uuid: name}, {Uuid: "GPU-c"}}, s, quiet)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); m.Run(ctx) }()
			synctest.Wait()
			if got := oneGPU(m); got != name+" 7 1" {
				t.Errorf("of %s it reports %s", name, got)
			}
			time.Sleep(meterStale + time.Second)
			if got := oneGPU(m); got != "0 GPUs" {
				t.Errorf("of a driver that hangs it reports %s", got)
			}
			began := time.Now()
			cancel()
			<-ended
			if took := time.Since(began); took > meterEnd {
				t.Errorf("the end takes %s", took)
			}
		})
	}
}

// failing fails at once.
type failing struct{ times *[]time.Time }

func (f failing) measure(context.Context, time.Duration, func(int, string) bool,
	func(int, string, int32, uint64),
) error {
	*f.times = append(*f.times, time.Now())
	return errors.New("odd")
}

// TestMeterBacksOff: the pauses after failures grow up to five minutes. Without GPUs there is nothing to run.
func TestMeterBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		newMeter(someGPUs(), failing{&times}, quiet).Run(ctx)
		if n := len(times); n < 15 || n > 20 || times[1].Sub(times[0]) != 2*time.Second ||
			times[n-1].Sub(times[n-2]) != meterLast {
			t.Errorf("in an hour it tries at %v", times)
		}
	})
	var none *Meter
	if m := NewMeter(&Held{}, quiet); m != nil || none.Last() != nil {
		t.Error("without GPUs there is a meter")
	}
	none.Run(t.Context())
}

// BenchmarkSMILines reads what a nvidia-smi prints in one interval on a machine with 8 GPUs, of which 4 are held.
func BenchmarkSMILines(b *testing.B) {
	var gpus []*clusterpb.GPU
	var text bytes.Buffer
	for i := range 8 {
		uuid := fmt.Sprintf("GPU-%08d-1111-2222-3333-444444444444", i)
		fmt.Fprintf(&text, "%s, %d, %d\n", uuid, 10*i, 1000*i)
		if i%2 == 0 {
			gpus = append(gpus, &clusterpb.GPU{Uuid: uuid})
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	m := newMeter(gpus, noDriverSource{}, quiet)
	seen := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		lines := 0
		_, err := readSMI(bufio.NewScanner(read), m.holds, func(index int, uuid string, percent int32, used uint64) {
			m.report(index, uuid, percent, used)
			if lines++; lines%len(gpus) == 0 {
				seen <- struct{}{}
			}
		})
		ended <- err
	}()
	for b.Loop() {
		if _, err := write.Write(text.Bytes()); err != nil {
			b.Fatal(err)
		}
		<-seen
	}
	write.Close()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
