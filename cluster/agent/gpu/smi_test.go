package gpu

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// saidOfTwo is nvidia-smi -q -x of a machine with two GPUs, shortened.
const saidOfTwo = `<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>550.54.15</driver_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:1B:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<uuid>GPU-5f1c</uuid>
		<minor_number>3</minor_number>
		<fb_memory_usage>
			<total>81559 MiB</total><reserved>551 MiB</reserved><used>7 MiB</used><free>81001 MiB</free>
		</fb_memory_usage>
		<utilization><gpu_util>42 %</gpu_util><memory_util>3 %</memory_util></utilization>
		<processes>
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id><pid>812</pid><type>G</type>
				<process_name>Xorg</process_name><used_memory>4 MiB</used_memory>
			</process_info>
			<process_info>
				<pid>4711</pid><type>C</type><process_name>python</process_name><used_memory>426 MiB</used_memory>
			</process_info>
			<process_info>
				<pid>4712</pid><type>C+G</type><process_name>blender</process_name><used_memory>N/A</used_memory>
			</process_info>
		</processes>
	</gpu>
	<gpu id="00000000:5D:00.0">
		<product_name>NVIDIA T4</product_name>
		<uuid>GPU-77ab</uuid>
		<fb_memory_usage><total>15360 MiB</total><used>N/A</used></fb_memory_usage>
		<utilization><gpu_util>[N/A]</gpu_util></utilization>
		<processes></processes>
	</gpu>
</nvidia_smi_log>
`

func TestParseSMI(t *testing.T) {
	t.Parallel()
	gpus, err := parseSMI([]byte(saidOfTwo))
	if err != nil || len(gpus) != 2 {
		t.Fatalf("parseSMI: %v, %v", gpus, err)
	}
	first, second := gpus[0], gpus[1]
	if first.GetUuid() != "GPU-5f1c" || first.GetIndex() != 0 || first.GetName() != "NVIDIA H100 80GB HBM3" ||
		first.GetMemoryBytes() != 81559<<20 || first.GetUsedBytes() != 7<<20 || first.GetUtilization() != 42 {
		t.Errorf("the first is %v", first)
	}
	if p := first.GetProcesses(); len(p) != 2 || p[0].GetPid() != 4711 || p[0].GetUsedBytes() != 426<<20 ||
		p[1].GetPid() != 4712 || p[1].GetUsedBytes() != 0 {
		t.Errorf("those that compute on it are %v", p)
	}
	if second.GetUuid() != "GPU-77ab" || second.GetIndex() != 1 || second.GetUsedBytes() != 0 ||
		second.GetUtilization() != 0 || len(second.GetProcesses()) != 0 {
		t.Errorf("the second is %v", second)
	}
	for _, text := range []string{
		"", "No devices were found", "<other/>",
		"<nvidia_smi_log><gpu><product_name>T4</product_name></gpu></nvidia_smi_log>",
	} {
		if gpus, err := parseSMI([]byte(text)); err == nil {
			t.Errorf("%q gives %v", text, gpus)
		}
	}
}

func FuzzParseSMI(f *testing.F) {
	f.Add([]byte(saidOfTwo))
	f.Fuzz(func(t *testing.T, text []byte) {
		gpus, err := parseSMI(text)
		for i, g := range gpus {
			if err != nil || g.GetUuid() == "" || int(g.GetIndex()) != i || g.GetUtilization() < 0 || g.GetUtilization() > 100 {
				t.Errorf("GPU %d is %v, %v", i, g, err)
			}
		}
	})
}

// writeSMI makes a nvidia-smi that is a shell's script.
func writeSMI(t *testing.T, script string) smiLister {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "nvidia-smi"), "#!/bin/sh\n"+script)
	return smiLister{[]string{dir}}
}

func noSMIOnPath(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", "/nonexistent:/bin:/usr/bin")
	if path, err := (smiLister{}).find(); err == nil {
		t.Skipf("this machine has a %s of its own", path)
	}
}

func TestSMILister(t *testing.T) {
	noSMIOnPath(t)
	if _, err := (smiLister{[]string{"/nonexistent"}}).list(t.Context()); !errors.Is(err, errNoDriver) {
		t.Errorf("without nvidia-smi: %v", err)
	}
	gpus, err := writeSMI(t, "[ \"$*\" = '-q -x' ] && cat <<'EOF'\n"+saidOfTwo+"EOF\n").list(t.Context())
	if err != nil || len(gpus) != 2 {
		t.Errorf("list: %v, %v", gpus, err)
	}
	for want, script := range map[string]string{
		"(exit status 9): NVIDIA-SMI has failed": "echo; echo 'NVIDIA-SMI has failed because it could " +
			"not communicate with the NVIDIA driver.'; echo more; exit 9",
		"(exit status 127): cannot open libnvidia":                    "echo cannot open libnvidia >&2; exit 127",
		"printed no list of them (EOF) but \"No devices were found\"": "echo No devices were found",
		"context deadline exceeded):":                                 "exec sleep 60",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if strings.Contains(want, "deadline") {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		_, err := writeSMI(t, script).list(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "list the GPUs: ") || strings.Contains(err.Error(), "\n") ||
			strings.Contains(err.Error(), "more") {
			t.Errorf("%s: %v", script, err)
		}
		if !strings.Contains(want, "deadline") && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}
}

// listed is what a machine has, one answer after the other; the last one stays.
type listed struct{ answers []any }

func (l *listed) list(context.Context) ([]*clusterpb.GPU, error) {
	now := l.answers[0]
	if len(l.answers) > 1 {
		l.answers = l.answers[1:]
	}
	if err, ok := now.(error); ok {
		return nil, err
	}
	return now.([]*clusterpb.GPU), nil
}

func TestLibraryOrProgram(t *testing.T) {
	t.Parallel()
	none, odd := fmt.Errorf("%w: none of it", errNoDriver), errors.New("odd")
	for _, tt := range []struct {
		name             string
		library, program any
		want             string
	}{
		{"the library knows", someGPUs()[:1], odd, "GPU-a"},
		{"the library fails", odd, someGPUs(), "odd"},
		{"the program knows", none, someGPUs()[1:2], "GPU-b"},
		{"the program fails", none, odd, "odd"},
		{"neither is there", fmt.Errorf("%w: no library", errNoDriver), none, "no library"},
	} {
		gpus, err := libraryOrProgram{&listed{[]any{tt.library}}, &listed{[]any{tt.program}}}.list(t.Context())
		if got := fmt.Sprint(gpus, err); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestHoldWaitsForThoseThatEnd: an engine gives a place again while what was there before
// is still ending.
func TestHoldWaitsForThoseThatEnd(t *testing.T) {
	// Not beside others: a process that one of them is forking holds the lock for a moment.
	busy := someGPUs()[2:]
	free := []*clusterpb.GPU{{Uuid: "GPU-c", Index: 2}}
	p := Picker{
		Lister: &listed{[]any{busy, busy, free}}, Locks: Locks{filepath.Join(t.TempDir(), "locks")}, Patience: time.Minute,
	}
	held, err := p.Hold(t.Context(), 1, "demo/0")
	if err != nil || held.Visible() != "GPU-c" {
		t.Fatalf("held %v, %v", held, err)
	}
	defer held.Release()
	p.Patience = 0
	if _, err := p.Hold(t.Context(), 1, "demo/1"); err == nil ||
		!strings.Contains(err.Error(), "1 GPU is requested, but only 0 of 1 are free: GPU 2 is held by demo/0") {
		t.Errorf("held twice: %v", err)
	}
	p.Patience = time.Minute
	if _, err := p.Hold(t.Context(), 2, "demo/1"); err == nil ||
		!strings.Contains(err.Error(), "2 GPUs are requested, but only 0 of 1 are free") {
		t.Errorf("more than there are: %v", err)
	}
	p.Lister, p.Visible = &listed{[]any{errNoDriver}}, "4,7"
	if _, err := p.Hold(t.Context(), 1, "demo/1"); !errors.Is(err, errNoDriver) {
		t.Errorf("a variable that a person may have set is taken: %v", err)
	}
	p.Engine = true
	if held, err := p.Hold(t.Context(), 1, "demo/1"); err != nil || held.Visible() != "4" {
		t.Errorf("of the engine's held %v, %v", held, err)
	}
}
