package gpu

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/excerpt"
)

// errNoDriver: this program finds no NVIDIA driver or tool here.
var errNoDriver = errors.New("no GPU can be listed")

// libraryOrProgram lists GPUs by NVML, or by nvidia-smi if NVML cannot be called, e.g. in a
// build without cgo.
type libraryOrProgram struct{ library, program Lister }

func (l libraryOrProgram) list(ctx context.Context) ([]*clusterpb.GPU, error) {
	gpus, err := l.library.list(ctx)
	if !errors.Is(err, errNoDriver) {
		return gpus, err
	}
	gpus, other := l.program.list(ctx)
	if errors.Is(other, errNoDriver) {
		return nil, err
	}
	return gpus, other
}

// smiLister lists GPUs by nvidia-smi.
type smiLister struct {
	fallbackDirs []string // folders to search if it is not on PATH
}

func newSMILister() smiLister {
	return smiLister{[]string{"/usr/bin", "/usr/local/nvidia/bin", "/opt/nvidia/bin", "/usr/lib/wsl/lib"}}
}

// smiDelay bounds the time that nvidia-smi's pipes stay open after its end.
const smiDelay = time.Second

func (l smiLister) list(ctx context.Context) ([]*clusterpb.GPU, error) {
	path, err := l.find()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "-q", "-x")
	cmd.WaitDelay = smiDelay
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)+"\n"+said.String()), "\n") // errors are on stdout
	if err != nil {
		return nil, fmt.Errorf("list the GPUs: %s failed (%w): %s; see what it prints on that host", path, err,
			cmp.Or(excerpt.OneLine(first), "it printed nothing"))
	}
	gpus, err := parseSMI(out)
	if err != nil {
		return nil, fmt.Errorf("list the GPUs: %s -q -x printed no list of them (%w) but %q", path, err,
			excerpt.OneLine(first))
	}
	return gpus, nil
}

func (l smiLister) find() (string, error) {
	const name = "nvidia-smi"
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range l.fallbackDirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s", errNoDriver, name)
}

// smiLog has fields of nvidia-smi's output. Unknown values are N/A.
type smiLog struct {
	XMLName xml.Name `xml:"nvidia_smi_log"`
	GPUs    []smiGPU `xml:"gpu"`
}

type smiGPU struct {
	Name      string       `xml:"product_name"`
	UUID      string       `xml:"uuid"`
	Total     string       `xml:"fb_memory_usage>total"` // 81559 MiB
	Used      string       `xml:"fb_memory_usage>used"`
	Load      string       `xml:"utilization>gpu_util"` // 7 %
	Processes []smiProcess `xml:"processes>process_info"`
}

type smiProcess struct {
	PID  int32  `xml:"pid"`
	Type string `xml:"type"` // C computes, G draws, C+G
	Used string `xml:"used_memory"`
}

// parseSMI parses the output of nvidia-smi -q -x. A GPU's index is its position, as in NVML:
// both sort by PCI bus.
func parseSMI(text []byte) ([]*clusterpb.GPU, error) {
	var log smiLog
	if err := xml.Unmarshal(text, &log); err != nil {
		return nil, err
	}
	var gpus []*clusterpb.GPU
	for i, from := range log.GPUs {
		g := &clusterpb.GPU{
			Index: int32(i), Uuid: excerpt.OneLine(from.UUID), Name: excerpt.OneLine(from.Name),
			MemoryBytes: mebibytes(from.Total), UsedBytes: mebibytes(from.Used),
			Utilization: int32(min(amount(from.Load, "%"), 100)),
		}
		if g.GetUuid() == "" {
			return nil, fmt.Errorf("GPU %d has no UUID", i)
		}
		for _, p := range from.Processes {
			if strings.Contains(p.Type, "C") {
				g.Processes = append(g.Processes, &clusterpb.GPUProcess{Pid: p.PID, UsedBytes: mebibytes(p.Used)})
			}
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

func mebibytes(text string) uint64 { return amount(text, "MiB") << 20 }

// amount returns a number with a unit; 0 if there is none.
func amount(text, unit string) uint64 {
	number, found := strings.CutSuffix(strings.TrimSpace(text), unit)
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 40)
	if !found || err != nil {
		return 0
	}
	return n
}
