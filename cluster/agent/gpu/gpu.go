// Package gpu lists the GPUs of this host and picks free ones for an executor, each under a
// lock that is shared by all users of the host.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/excerpt"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// Lister lists a machine's GPUs and the processes that use them.
type Lister interface {
	// list may hang although ctx has ended.
	list(ctx context.Context) ([]*clusterpb.GPU, error)
}

// inventoryLimit bounds Inventory and CheckFree where calls of the NVIDIA driver hang.
const inventoryLimit = 20 * time.Second

// Inventory lists this machine's GPUs with their users and the clusters that hold them. Without
// a driver it returns an error.
func Inventory(ctx context.Context) ([]*clusterpb.GPU, error) {
	ctx, cancel := context.WithTimeout(ctx, inventoryLimit)
	defer cancel()
	gpus, err := listGPUs(ctx, NewLister())
	if err != nil {
		return nil, err
	}
	locks := DefaultLocks()
	for _, g := range gpus {
		g.Holder = locks.holder(g.GetUuid())
	}
	return gpus, nil
}

// listGPUs calls lister, which may hang, and returns when ctx ends.
func listGPUs(ctx context.Context, lister Lister) ([]*clusterpb.GPU, error) {
	type answer struct {
		gpus []*clusterpb.GPU
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		gpus, err := lister.list(ctx)
		answers <- answer{gpus, err}
	}()
	select {
	case a := <-answers:
		host, _ := os.Hostname()
		for _, g := range a.gpus {
			g.Host = host
			for _, p := range g.GetProcesses() {
				p.User, p.Command = ownerOf(int(p.GetPid()))
			}
		}
		return a.gpus, a.err
	case <-ctx.Done():
		return nil, errors.New("list the GPUs: the NVIDIA driver does not answer: see what nvidia-smi prints on that host")
	}
}

// ownerOf returns a process's user and command, as far as this user may read them.
func ownerOf(pid int) (name, command string) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
		command = excerpt.OneLine(string(line))
	}
	uid, ok := proc.Owner(dir)
	if !ok {
		return "", command
	}
	if u, err := user.LookupId(uid); err == nil {
		return u.Username, command
	}
	return "uid " + uid, command
}

// Held are the GPUs this executor has picked, each under its host's lock.
type Held struct {
	GPUs  []*clusterpb.GPU
	locks []*os.File
}

// How long GPUs are waited for that others have: an engine gives a place again while what
// was there before is still ending.
const (
	gpuPatience = 5 * time.Second
	gpuPause    = 250 * time.Millisecond
)

// Hold picks and locks count free GPUs of this host for an executor; see Picker.
func Hold(ctx context.Context, count int, engine bool, holder string) (*Held, error) {
	return Picker{NewLister(), DefaultLocks(), os.Getenv("CUDA_VISIBLE_DEVICES"), engine, gpuPatience}.Hold(ctx,
		count, holder)
}

// CheckFree returns why count GPUs of this host cannot be held, or nil. It waits gpuPatience for
// those that others have.
func CheckFree(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, inventoryLimit)
	defer cancel()
	held, err := Hold(ctx, count, false, "a reservation that begins")
	if err != nil {
		return err
	}
	held.Release()
	return nil
}

// Picker picks GPUs of this machine for an executor.
type Picker struct {
	Lister   Lister
	Locks    Locks
	Visible  string // CUDA_VISIBLE_DEVICES as the agent was started with it
	Engine   bool   // the engine set it for this executor alone; a variable that a person set all executors see
	Patience time.Duration
}

// Hold picks and locks count free GPUs. holder is shown to others as their owner. If GPUs
// cannot be listed, those that the engine assigned are taken without a lock.
func (p Picker) Hold(ctx context.Context, count int, holder string) (*Held, error) {
	for end := time.Now().Add(p.Patience); ; {
		gpus, err := listGPUs(ctx, p.Lister)
		if named := assignedUnseen(p.Visible); err != nil && p.Engine && len(named) >= count {
			return &Held{GPUs: named[:count]}, nil
		}
		if err != nil {
			return nil, err
		}
		listed := len(gpus)
		if gpus = assigned(gpus, p.Visible); len(gpus) == 0 && listed > 0 && count > 0 {
			return nil, fmt.Errorf("%d %s requested, but CUDA_VISIBLE_DEVICES=%s names none of the %d GPUs of this host; "+
				"name them by index or by UUID (GPU-…)", count, gpusAre(count), excerpt.OneLine(p.Visible), listed)
		}
		held, err := pickGPUs(gpus, count, holder, p.Locks)
		if err == nil || len(gpus) < count || time.Now().After(end) {
			return held, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(gpuPause):
		}
	}
}

// assigned returns the GPUs that the engine (Spark, YARN) assigned to this executor: those in
// CUDA_VISIBLE_DEVICES by index or UUID, or all if that is not set.
func assigned(gpus []*clusterpb.GPU, visible string) []*clusterpb.GPU {
	if visible == "" || visible == "-1" {
		return gpus
	}
	var named []*clusterpb.GPU
	for name := range strings.SplitSeq(visible, ",") {
		name = strings.TrimSpace(name)
		for _, g := range gpus {
			if name == strconv.Itoa(int(g.GetIndex())) ||
				strings.HasPrefix(name, "GPU-") && strings.HasPrefix(g.GetUuid(), name) {
				named = append(named, g)
			}
		}
	}
	return named
}

// assignedUnseen returns the assigned GPUs if they cannot be listed, e.g. in a build without
// NVML. Nothing is known about them but their names.
func assignedUnseen(visible string) []*clusterpb.GPU {
	var named []*clusterpb.GPU
	for name := range strings.SplitSeq(visible, ",") {
		if name = strings.TrimSpace(name); name == "" || name == "-1" {
			return nil
		}
		g := &clusterpb.GPU{Uuid: name, Name: "GPU"}
		if n, err := strconv.Atoi(name); err == nil {
			g.Index = int32(n)
		}
		named = append(named, g)
	}
	return named
}

// pickGPUs locks count unused GPUs, those with the most free memory first. The error names the
// users of the others.
func pickGPUs(gpus []*clusterpb.GPU, count int, holder string, locks Locks) (*Held, error) {
	order := slices.Clone(gpus)
	slices.SortStableFunc(order, func(a, b *clusterpb.GPU) int { return cmp.Compare(a.GetUsedBytes(), b.GetUsedBytes()) })
	held := &Held{}
	var taken []string
	for _, g := range order {
		if len(held.GPUs) == count {
			break
		}
		if len(g.GetProcesses()) > 0 {
			taken = append(taken, fmt.Sprintf("GPU %d is used by %s", g.GetIndex(), describe(g.GetProcesses()[0])))
			continue
		}
		lock, err := locks.lock(g.GetUuid(), holder)
		switch {
		case errors.Is(err, errGPULocked):
			taken = append(taken, fmt.Sprintf("GPU %d is held by %s", g.GetIndex(), locks.holder(g.GetUuid())))
		case err != nil:
			held.Release()
			return nil, fmt.Errorf("lock GPU %d: %w", g.GetIndex(), err)
		default:
			g.Holder = holder
			held.GPUs, held.locks = append(held.GPUs, g), append(held.locks, lock)
		}
	}
	if len(held.GPUs) == count {
		return held, nil
	}
	free := len(held.GPUs)
	held.Release()
	why := "; request fewer: this host has no others, or CUDA_VISIBLE_DEVICES hides them"
	if len(taken) > 0 {
		why = ": " + strings.Join(taken, "; ") + "; request fewer, or end the processes that hold them"
	}
	return nil, fmt.Errorf("%d %s requested, but only %d of %d are free%s", count, gpusAre(count), free, len(gpus), why)
}

func gpusAre(n int) string {
	if n == 1 {
		return "GPU is"
	}
	return "GPUs are"
}

func describe(p *clusterpb.GPUProcess) string {
	text := fmt.Sprintf("pid %d", p.GetPid())
	if p.GetUser() != "" || p.GetCommand() != "" {
		command := p.GetCommand()
		if len(command) > 80 {
			command = command[:excerpt.WholeRunes([]byte(command[:80]))] + "…"
		}
		text += fmt.Sprintf(" (%s: %s)", p.GetUser(), command)
	}
	return text
}

// Visible returns CUDA_VISIBLE_DEVICES for a task: the held GPUs by UUID, or "-1".
func (h *Held) Visible() string {
	if len(h.GPUs) == 0 {
		return "-1"
	}
	uuids := make([]string, len(h.GPUs))
	for i, g := range h.GPUs {
		uuids[i] = g.GetUuid()
	}
	return strings.Join(uuids, ",")
}

// Release releases the locks.
func (h *Held) Release() {
	for _, lock := range h.locks {
		lock.Close()
	}
	h.locks, h.GPUs = nil, nil
}
