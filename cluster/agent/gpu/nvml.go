//go:build cgo

package gpu

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// nvmlLibrary is what is used of NVML. It is opened when it is first asked.
type nvmlLibrary interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return)
	ErrorString(r nvml.Return) string
}

// nvmlLister lists GPUs by NVIDIA's management library.
type nvmlLister struct{ library nvmlLibrary }

// NewLister returns what lists the GPUs of this host: NVML where there is a driver, else
// nvidia-smi.
func NewLister() Lister { return libraryOrProgram{nvmlLister{nvml.New()}, newSMILister()} }

// list leaves out what this process may not use: an engine that isolates GPUs, such as
// YARN by cgroups, takes the others' devices away, and they are counted all the same.
func (l nvmlLister) list(context.Context) ([]*clusterpb.GPU, error) {
	switch r := l.library.Init(); r {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: this machine has no NVIDIA driver (neither libnvidia-ml.so.1 nor nvidia-smi is found)", errNoDriver)
	default:
		return nil, fmt.Errorf("no GPU can be listed: NVML: %s", l.library.ErrorString(r))
	}
	defer func() { _ = l.library.Shutdown() }() // what was read stays read
	count, r := l.library.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs: NVML: %s", l.library.ErrorString(r))
	}
	var gpus []*clusterpb.GPU
	for i := range count {
		device, r := l.library.DeviceGetHandleByIndex(i)
		if r == nvml.ERROR_NO_PERMISSION {
			continue
		}
		if r != nvml.SUCCESS {
			return nil, fmt.Errorf("open GPU %d: NVML: %s", i, l.library.ErrorString(r))
		}
		g, err := l.describe(i, device)
		if err != nil {
			return nil, err
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

// describe tells what one GPU is. What a GPU does not tell (some have no
// utilization, MIG hides processes) is left empty; without a UUID it is no use.
func (l nvmlLister) describe(index int, device nvml.Device) (*clusterpb.GPU, error) {
	g := &clusterpb.GPU{Index: int32(index)}
	var r nvml.Return
	if g.Uuid, r = device.GetUUID(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("name GPU %d: NVML: %s", index, l.library.ErrorString(r))
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
