package gpu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/excerpt"
)

func someGPUs() []*clusterpb.GPU {
	return []*clusterpb.GPU{
		{Uuid: "GPU-a", Index: 0, UsedBytes: 5},
		{Uuid: "GPU-b", Index: 1, UsedBytes: 1},
		{Uuid: "GPU-c", Index: 2, Processes: []*clusterpb.GPUProcess{{Pid: 4711, User: "alice", Command: "python train.py"}}},
	}
}

func TestPickGPUs(t *testing.T) {
	// Not beside others: a process that one of them is forking holds the lock for a moment.
	locks := Locks{filepath.Join(t.TempDir(), "locks")}
	first, err := pickGPUs(someGPUs(), 1, "demo/0", locks)
	if err != nil || first.Visible() != "GPU-b" {
		t.Fatalf("picked %v, %v: want the emptiest", first, err)
	}
	if who := locks.holder("GPU-b"); !strings.Contains(who, "demo/0") {
		t.Errorf("GPU-b is held by %q", who)
	}
	_, err = pickGPUs(someGPUs(), 2, "other/0", locks)
	if err == nil {
		t.Fatal("a GPU was given twice")
	}
	for _, want := range []string{
		"2 GPUs are requested, but only 1 of 3 are free", "GPU 1 is held by demo/0",
		"GPU 2 is used by pid 4711 (alice: python train.py)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	second, err := pickGPUs(someGPUs(), 1, "other/0", locks) // the failure kept nothing
	if err != nil || second.Visible() != "GPU-a" {
		t.Fatalf("picked %v, %v", second, err)
	}
	first.Release()
	if who := locks.holder("GPU-b"); who != "" {
		t.Errorf("GPU-b is still held by %q", who)
	}
	if first.Visible() != "-1" {
		t.Errorf("without GPUs visible is %q", first.Visible())
	}
	second.Release()
}

func TestGPULocksAreForEveryUser(t *testing.T) {
	t.Parallel()
	locks := Locks{filepath.Join(t.TempDir(), "locks")}
	f, err := locks.lock("GPU-a", "x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir, err := os.Stat(locks.dir)
	if err != nil || dir.Mode().Perm() != 0o777 || dir.Mode()&os.ModeSticky == 0 {
		t.Errorf("the folder's mode is %v, %v", dir.Mode(), err)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the lock's mode is %v, %v", info.Mode(), err)
	}
}

// TestAskingWhoHoldsAGPUTakesNothing: a reservation beside somebody who looks at the
// GPUs is given the free one.
func TestAskingWhoHoldsAGPUTakesNothing(t *testing.T) {
	// Not beside others: a process that one of them is forking holds the lock for a moment.
	locks := Locks{filepath.Join(t.TempDir(), "locks")}
	stop := make(chan struct{})
	var lookers sync.WaitGroup
	for range 2 {
		lookers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					locks.holder("GPU-a")
				}
			}
		})
	}
	defer lookers.Wait()
	defer close(stop)
	for range 2000 {
		f, err := locks.lock("GPU-a", "demo/0")
		if err != nil {
			t.Fatalf("nobody holds it: %v", err)
		}
		f.Close()
	}
}

func TestGPULockThatIsAFifo(t *testing.T) {
	t.Parallel()
	locks := Locks{t.TempDir()}
	if err := unix.Mkfifo(locks.path("GPU-a"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.lock("GPU-a", "x"); err == nil {
		t.Error("a fifo was taken for a lock")
	}
	answer := make(chan string, 1)
	go func() { answer <- locks.holder("GPU-a") }()
	select {
	case who := <-answer:
		if who != "" {
			t.Errorf("a fifo says that %q holds the GPU", who)
		}
	case <-time.After(time.Minute):
		t.Error("the fifo is waited for")
		if w, err := os.OpenFile(locks.path("GPU-a"), os.O_WRONLY, 0); err == nil {
			w.Close() // lets the reader go
		}
		<-answer
	}
}

// TestWhatOthersWroteIsOneLine: what a message cannot hold would keep the agent from
// joining, and a terminal obeys what it is given.
func TestWhatOthersWroteIsOneLine(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	cmd.Args = []string{"\xffsleep\x1b[31m\nred", "60"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, command := ownerOf(cmd.Process.Pid); command != "" { // the system fills it in after the program's begin
			break
		}
	}
	if _, command := ownerOf(cmd.Process.Pid); command != "\uFFFDsleep [31m red 60" {
		t.Errorf("the command is %q", command)
	}
	locks := Locks{t.TempDir()}
	f, err := locks.lock("GPU-a", "\xff\x1bme\nand you")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if who := locks.holder("GPU-a"); !strings.HasPrefix(who, "\uFFFD me and you (pid ") {
		t.Errorf("it is held by %q", who)
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("first\n\xff\x1blast"+strings.Repeat("é", 1<<16)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if last := excerpt.LastLine(log); !utf8.ValidString(last) || len(last) > excerpt.MaxLastLine+4 {
		t.Errorf("the log ends with %q", last)
	}
}

func TestGPULockThatIsALink(t *testing.T) {
	t.Parallel()
	locks := Locks{t.TempDir()}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, locks.path("GPU-a")); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.lock("GPU-a", "x"); err == nil {
		t.Error("a link was followed")
	}
	if content, _ := os.ReadFile(target); string(content) != "precious" {
		t.Errorf("the link's target was written: %q", content)
	}
}

func TestAssigned(t *testing.T) {
	t.Parallel()
	for visible, want := range map[string]string{
		"": "GPU-a GPU-b GPU-c", "-1": "GPU-a GPU-b GPU-c", "1": "GPU-b", "2, 0": "GPU-c GPU-a", "GPU-c": "GPU-c", "7": "",
	} {
		var got []string
		for _, g := range assigned(someGPUs(), visible) {
			got = append(got, g.GetUuid())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q gives %v, want %s", visible, got, want)
		}
	}
}

// TestNoGPUIsNamed: where CUDA_VISIBLE_DEVICES names no GPU of the host, the error names the variable.
func TestNoGPUIsNamed(t *testing.T) {
	t.Parallel()
	for visible, want := range map[string]string{
		"MIG-a": "1 GPU is requested, but CUDA_VISIBLE_DEVICES=MIG-a names none of the 3 GPUs of this host",
		"7,8":   "CUDA_VISIBLE_DEVICES=7,8 names none", "2": "only 0 of 1 are free",
	} {
		_, err := Picker{Lister: threeGPUs{}, Locks: Locks{filepath.Join(t.TempDir(), "locks")}, Visible: visible}.Hold(
			t.Context(), 1, "demo/0")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: %v, want %s", visible, err, want)
		}
	}
}

type threeGPUs struct{}

func (threeGPUs) list(context.Context) ([]*clusterpb.GPU, error) { return someGPUs(), nil }

type hungLister struct{ wait chan struct{} }

func (l hungLister) list(context.Context) ([]*clusterpb.GPU, error) {
	<-l.wait
	return nil, errors.New("late")
}

func TestADriverThatHangs(t *testing.T) {
	t.Parallel()
	l := hungLister{make(chan struct{})}
	defer close(l.wait)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := listGPUs(ctx, l); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("listGPUs: %v", err)
	}
}

func TestInventoryHereSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	gpus, err := Inventory(t.Context())
	if err == nil {
		t.Logf("%d GPUs", len(gpus))
	} else if !strings.Contains(err.Error(), "GPU") {
		t.Errorf("Inventory: %v", err)
	}
}
