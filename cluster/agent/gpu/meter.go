package gpu

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Times of measuring.
const (
	meterEvery = 2 * time.Second
	meterStale = 3 * meterEvery   // older measurements are not reported: the driver hangs, or its tool has ended
	meterFirst = 2 * time.Second  // pause after a failure, doubled after each
	meterLast  = 5 * time.Minute  // the longest one
	meterEnd   = 3 * time.Second  // for the end of measuring; NVML may hang
	meterCalm  = 30 * time.Second // after that without a failure the pause is short again
	minUUID    = len("GPU-") + 8  // of a prefix of a UUID, as CUDA_VISIBLE_DEVICES takes it
)

// source measures GPUs.
type source interface {
	// measure calls report for each GPU each interval until ctx ends or an error occurs. It reports all GPUs of the host,
	// or those for which wanted returns true.
	measure(ctx context.Context, every time.Duration, wanted func(index int, uuid string) bool,
		report func(index int, uuid string, percent int32, used uint64),
	) error
}

// Meter measures the use of an executor's GPUs. A nil Meter measures nothing.
type Meter struct {
	held   []*clusterpb.GPU
	source source
	log    *slog.Logger
	every  time.Duration
	pause  time.Duration // the first one after a failure

	mu   sync.Mutex
	last []measured // of held, in their order
}

type measured struct {
	at      time.Time
	percent int32
	used    uint64
}

// NewMeter returns a Meter of the held GPUs; nil if there are none.
func NewMeter(held *Held, log *slog.Logger) *Meter { return newMeter(held.GPUs, newSource(), log) }

func newMeter(gpus []*clusterpb.GPU, s source, log *slog.Logger) *Meter {
	if len(gpus) == 0 {
		return nil
	}
	return &Meter{held: gpus, source: s, log: log, every: meterEvery, pause: meterFirst, last: make([]measured, len(gpus))}
}

// Run measures until ctx ends, or until there is neither NVML nor nvidia-smi. One goroutine calls it.
func (m *Meter) Run(ctx context.Context) {
	if m == nil {
		return
	}
	for pause := m.pause; ; pause = min(2*pause, meterLast) {
		began := time.Now()
		err := m.measure(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoDriver):
			m.log.Info("the use of GPUs is not measured", "err", err)
			return
		}
		if time.Since(began) > meterCalm {
			pause = m.pause
		}
		m.log.Warn("the use of GPUs is not measured now; it is tried again after a pause", "pause", pause, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// measure measures until ctx ends or an error occurs. It does not wait for a driver that hangs after ctx has ended.
func (m *Meter) measure(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.source.measure(ctx, m.every, m.holds, m.report) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(meterEnd):
		return ctx.Err()
	}
}

// holds returns whether a GPU is held.
func (m *Meter) holds(index int, uuid string) bool { return m.find(index, uuid) >= 0 }

// find returns the position of a GPU among the held ones; -1 if it is not held. A GPU that could not be listed is known
// by its name in CUDA_VISIBLE_DEVICES only: its index or a prefix of its UUID. index is -1 if it is not known.
func (m *Meter) find(index int, uuid string) int {
	return slices.IndexFunc(m.held, func(g *clusterpb.GPU) bool {
		name := g.GetUuid()
		return name == uuid || index >= 0 && name == strconv.Itoa(index) ||
			len(name) >= minUUID && strings.HasPrefix(uuid, name)
	})
}

func (m *Meter) report(index int, uuid string, percent int32, used uint64) {
	i := m.find(index, uuid)
	if i < 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[i] = measured{time.Now(), percent, used}
}

// Last returns the last measurement of the held GPUs; those without a recent one are left out.
func (m *Meter) Last() []*clusterpb.GPU {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*clusterpb.GPU
	for i, l := range m.last {
		if !l.at.IsZero() && time.Since(l.at) <= meterStale {
			out = append(out, &clusterpb.GPU{Uuid: m.held[i].GetUuid(), Utilization: l.percent, UsedBytes: l.used})
		}
	}
	return out
}

// libraryOrProgramSource measures by NVML, or by nvidia-smi if NVML cannot be called.
type libraryOrProgramSource struct{ library, program source }

func (s libraryOrProgramSource) measure(ctx context.Context, every time.Duration, wanted func(int, string) bool,
	report func(int, string, int32, uint64),
) error {
	err := s.library.measure(ctx, every, wanted, report)
	if !errors.Is(err, errNoDriver) {
		return err
	}
	other := s.program.measure(ctx, every, wanted, report)
	if errors.Is(other, errNoDriver) {
		return err
	}
	return other
}
