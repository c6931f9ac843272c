//go:build cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func fakeNVML(devices ...nvml.Device) *mock.Interface {
	return &mock.Interface{
		InitFunc:           func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:       func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc: func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			return devices[i], nvml.SUCCESS
		},
		ErrorStringFunc: func(r nvml.Return) string { return "return code" },
	}
}

func TestNVMLList(t *testing.T) {
	t.Parallel()
	device := &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetNameFunc: func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
			return nvml.Memory{Total: 100, Used: 10}, nvml.SUCCESS
		},
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
		},
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 42, UsedGpuMemory: ^uint64(0)}}, nvml.SUCCESS
		},
	}
	library := fakeNVML(device)
	gpus, err := nvmlLister{library}.list(t.Context())
	if err != nil || len(gpus) != 1 {
		t.Fatalf("list: %v, %v", gpus, err)
	}
	g := gpus[0]
	if g.GetUuid() != "GPU-1" || g.GetName() != "NVIDIA H200" || g.GetMemoryBytes() != 100 || g.GetUsedBytes() != 10 ||
		len(g.GetProcesses()) != 1 || g.GetProcesses()[0].GetPid() != 42 || g.GetProcesses()[0].GetUsedBytes() != 0 {
		t.Errorf("list: %v", g)
	}
	if n := len(library.ShutdownCalls()); n != 1 {
		t.Errorf("NVML was shut down %d times", n)
	}
}

// TestNVMLListsWhatMayBeUsed: devices that an engine's isolation took away are counted,
// and cannot be opened.
func TestNVMLListsWhatMayBeUsed(t *testing.T) {
	t.Parallel()
	library := fakeNVML(nil, &mock.Device{
		GetUUIDFunc:       func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetNameFunc:       func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN },
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{}, nvml.ERROR_UNKNOWN
		},
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_UNKNOWN },
	})
	opened := library.DeviceGetHandleByIndexFunc
	library.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_NO_PERMISSION
		}
		return opened(i)
	}
	gpus, err := nvmlLister{library}.list(t.Context())
	if err != nil || len(gpus) != 1 || gpus[0].GetUuid() != "GPU-1" || gpus[0].GetIndex() != 1 {
		t.Errorf("list: %v, %v", gpus, err)
	}
}

func TestNVMLFailures(t *testing.T) {
	t.Parallel()
	missing := fakeNVML()
	missing.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	uncounted := fakeNVML()
	uncounted.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	nameless := fakeNVML(&mock.Device{GetUUIDFunc: func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }})
	for want, library := range map[string]*mock.Interface{
		"no NVIDIA driver": missing, "count the GPUs": uncounted, "find the UUID of GPU 0": nameless,
	} {
		if _, err := (nvmlLister{library}).list(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("list: %v, want %s", err, want)
		}
	}
}

// TestNVMLCodes: the error has the return code that failed.
func TestNVMLCodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ memory, load, want nvml.Return }{
		{nvml.ERROR_GPU_IS_LOST, nvml.SUCCESS, nvml.ERROR_GPU_IS_LOST},
		{nvml.SUCCESS, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_IS_LOST},
		{nvml.ERROR_UNKNOWN, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_IS_LOST},
		{nvml.ERROR_UNKNOWN, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_UNKNOWN},
	} {
		library := fakeNVML(&mock.Device{
			GetUUIDFunc:             func() (string, nvml.Return) { return "GPU-a", nvml.SUCCESS },
			GetMemoryInfoFunc:       func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, tt.memory },
			GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, tt.load },
		})
		library.ErrorStringFunc = func(r nvml.Return) string { return fmt.Sprintf("code %d", r) }
		all := func(int, string) bool { return true }
		err := nvmlLister{library}.measure(t.Context(), time.Hour, all,
			func(int, string, int32, uint64) { t.Error("it reports a value") })
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("measure GPU 0: NVML: code %d;", tt.want)) {
			t.Errorf("codes %d and %d: %v", tt.memory, tt.load, err)
		}
	}
}

// TestNVMLMeasure: NVML stays initialised and the held device open between measurements; a device that is lost ends it.
func TestNVMLMeasure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Uint32
		device := &mock.Device{
			GetUUIDFunc:       func() (string, nvml.Return) { return "GPU-a", nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Used: 10}, nvml.SUCCESS },
			GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
				if n.Add(1) > 100 {
					return nvml.Utilization{}, nvml.ERROR_GPU_IS_LOST
				}
				return nvml.Utilization{Gpu: n.Load()}, nvml.SUCCESS
			},
		}
		// Has no other call.
		other := &mock.Device{GetUUIDFunc: func() (string, nvml.Return) { return "GPU-other", nvml.SUCCESS }}
		library := fakeNVML(nil, other, device)
		opened := library.DeviceGetHandleByIndexFunc
		library.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i == 0 {
				return nil, nvml.ERROR_NO_PERMISSION
			}
			return opened(i)
		}
		m := newMeter([]*clusterpb.GPU{{Uuid: "GPU-a"}}, nvmlLister{library}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); m.Run(ctx) }()
		time.Sleep(19 * time.Second)
		if got := m.Last(); len(got) != 1 || got[0].GetUuid() != "GPU-a" || got[0].GetUtilization() != 10 ||
			got[0].GetUsedBytes() != 10 {
			t.Errorf("after 19 s it reports %v", got)
		}
		if i, d, s := len(library.InitCalls()), len(library.DeviceGetHandleByIndexCalls()),
			len(library.ShutdownCalls()); i != 1 || d != 3 || s != 0 {
			t.Errorf("NVML was initialised %d times, devices were opened %d times, it was shut down %d times", i, d, s)
		}
		time.Sleep(4 * time.Minute) // the device is lost
		if got := m.Last(); len(got) != 0 {
			t.Errorf("of a device that is lost it reports %v", got)
		}
		if i := len(library.InitCalls()); i < 2 || i > 6 {
			t.Errorf("NVML was initialised %d times", i)
		}
		cancel()
		<-ended
		if i, s := len(library.InitCalls()), len(library.ShutdownCalls()); i != s {
			t.Errorf("NVML was initialised %d times and shut down %d times", i, s)
		}
	})
}

// TestNVMLMeasureFailures: without a driver nothing is measured; other errors are said.
func TestNVMLMeasureFailures(t *testing.T) {
	t.Parallel()
	missing := fakeNVML()
	missing.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	uncounted := fakeNVML()
	uncounted.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	for want, library := range map[string]*mock.Interface{
		"no NVIDIA driver": missing, "count the GPUs": uncounted, "none of the executor's GPUs is among the 0": fakeNVML(),
	} {
		err := nvmlLister{library}.measure(t.Context(), time.Second, func(int, string) bool { return true },
			func(int, string, int32, uint64) {})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, errNoDriver) != (library == missing) {
			t.Errorf("measure: %v, want %s", err, want)
		}
	}
}
