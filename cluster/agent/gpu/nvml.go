//go:build cgo

package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// nvmlLibrary has the used functions of NVML, which is opened at the first call.
type nvmlLibrary interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return)
	ErrorString(r nvml.Return) string
}

// nvmlLister lists GPUs by NVML.
type nvmlLister struct{ library nvmlLibrary }

// NewLister returns a Lister of this host's GPUs: by NVML if there is a driver, else by
// nvidia-smi.
func NewLister() Lister { return libraryOrProgram{nvmlLister{nvml.New()}, newSMILister()} }

// newSource returns what measures GPUs.
func newSource() source { return libraryOrProgramSource{nvmlLister{nvml.New()}, newSMILister()} }

// open initialises NVML.
func (l nvmlLister) open() error {
	switch r := l.library.Init(); r {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: this machine has no NVIDIA driver (neither libnvidia-ml.so.1 nor nvidia-smi is found)",
			errNoDriver)
	default:
		return fmt.Errorf("no GPU can be listed: NVML, the library of NVIDIA's driver, says: %s; "+
			"nvidia-smi on that host says more", l.library.ErrorString(r))
	}
}

// list omits GPUs that this process may not use: an engine that isolates GPUs, such as YARN by
// cgroups, blocks the devices of others, but NVML counts them.
func (l nvmlLister) list(context.Context) ([]*clusterpb.GPU, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	defer func() { _ = l.library.Shutdown() }() // the results are complete
	count, r := l.library.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs: NVML: %s; nvidia-smi on that host says more", l.library.ErrorString(r))
	}
	var gpus []*clusterpb.GPU
	for i := range count {
		device, r := l.library.DeviceGetHandleByIndex(i)
		if r == nvml.ERROR_NO_PERMISSION {
			continue
		}
		if r != nvml.SUCCESS {
			return nil, fmt.Errorf("open GPU %d: NVML: %s; nvidia-smi on that host says more", i, l.library.ErrorString(r))
		}
		g, err := l.describe(i, device)
		if err != nil {
			return nil, err
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

// describe returns one GPU. Values that it does not report (some have no utilization, MIG hides
// processes) are empty; a GPU without UUID is an error.
func (l nvmlLister) describe(index int, device nvml.Device) (*clusterpb.GPU, error) {
	g := &clusterpb.GPU{Index: int32(index)}
	var r nvml.Return
	if g.Uuid, r = device.GetUUID(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("find the UUID of GPU %d: NVML: %s; nvidia-smi on that host says more", index,
			l.library.ErrorString(r))
	}
	if name, r := device.GetName(); r == nvml.SUCCESS {
		g.Name = name
	}
	if memory, r := device.GetMemoryInfo(); r == nvml.SUCCESS {
		g.MemoryBytes, g.UsedBytes = memory.Total, memory.Used
	}
	if load, r := device.GetUtilizationRates(); r == nvml.SUCCESS {
		g.Utilization = int32(load.Gpu)
	}
	if running, r := device.GetComputeRunningProcesses(); r == nvml.SUCCESS {
		for _, p := range running {
			used := p.UsedGpuMemory
			if used == ^uint64(0) { // NVML_VALUE_NOT_AVAILABLE
				used = 0
			}
			g.Processes = append(g.Processes, &clusterpb.GPUProcess{Pid: int32(p.Pid), UsedBytes: used})
		}
	}
	return g, nil
}

// nvmlGPU is a GPU that is measured.
type nvmlGPU struct {
	nvml.Device
	index int
	uuid  string
}

// measure keeps NVML initialised and the devices open.
func (l nvmlLister) measure(ctx context.Context, every time.Duration, wanted func(int, string) bool,
	report func(int, string, int32, uint64),
) error {
	if err := l.open(); err != nil {
		return err
	}
	defer func() { _ = l.library.Shutdown() }() // nothing is read after it
	gpus, err := l.devices(wanted)
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for _, g := range gpus {
			memory, r := g.GetMemoryInfo()
			load, other := g.GetUtilizationRates()
			if other == nvml.ERROR_GPU_IS_LOST {
				r = other // the code that failed
			}
			if r == nvml.ERROR_GPU_IS_LOST || r != nvml.SUCCESS && other != nvml.SUCCESS {
				return fmt.Errorf("measure GPU %d: NVML: %s; nvidia-smi on that host says more", g.index, l.library.ErrorString(r))
			}
			report(g.index, g.uuid, int32(min(load.Gpu, 100)), memory.Used)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// devices opens the wanted GPUs.
func (l nvmlLister) devices(wanted func(int, string) bool) ([]nvmlGPU, error) {
	count, r := l.library.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs: NVML: %s; nvidia-smi on that host says more", l.library.ErrorString(r))
	}
	var gpus []nvmlGPU
	for i := range count {
		device, r := l.library.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS { // others' GPUs may not be opened
			continue
		}
		if uuid, r := device.GetUUID(); r == nvml.SUCCESS && wanted(i, uuid) {
			gpus = append(gpus, nvmlGPU{device, i, uuid})
		}
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("measure the GPUs: none of the executor's GPUs is among the %d GPUs of this machine", count)
	}
	return gpus, nil
}
