package tasklog

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// batchInterval is the minimum time between two rounds of batches.
const batchInterval = 40 * time.Millisecond

// Shipper sends tasks' lines over the Logs stream.
type Shipper struct {
	Dir  string        // for the spools
	wake chan struct{} // capacity 1

	mu sync.Mutex
	// guarded by mu
	logs []*Log // in the order of the launches
}

// NewShipper returns a shipper that spools lines in a folder.
func NewShipper(dir string) *Shipper {
	return &Shipper{Dir: dir, wake: make(chan struct{}, 1)}
}

// Open starts the log of a task's attempt.
func (s *Shipper) Open(key Key) *Log {
	l := &Log{key: key, wake: s.notify}
	l.dir = filepath.Join(s.Dir, fmt.Sprintf("%d.%d-%s", key.Run, key.Attempt, strings.ReplaceAll(key.Task, "/", "_")))
	s.mu.Lock()
	s.logs = append(s.logs, l)
	s.mu.Unlock()
	return l
}

func (s *Shipper) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Shipper) all() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logs)
}

// Prune removes the logs that were delivered completely.
func (s *Shipper) Prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = slices.DeleteFunc(s.logs, func(l *Log) bool {
		if !l.delivered() {
			return false
		}
		l.remove()
		return true
	})
}

// Delivered returns whether every log was delivered completely.
func (s *Shipper) Delivered() bool {
	return !slices.ContainsFunc(s.all(), func(l *Log) bool { return !l.delivered() })
}

// Ship sends lines until the stream breaks or ctx ends, and returns the error.
func (s *Shipper) Ship(ctx context.Context, client clusterpb.CoordinatorClient) error {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := client.Logs(ctx)
	if err != nil {
		cancel()
		return clusterpb.Plain(err)
	}
	broke := make(chan error, 1)
	go func() { broke <- s.receive(stream) }()
	s.send(stream)
	cancel()
	return <-broke
}

// send returns when the stream has broken; receive returns the reason.
func (s *Shipper) send(stream grpc.BidiStreamingClient[clusterpb.LogBatch, clusterpb.LogAck]) {
	for _, l := range s.all() {
		l.rewind()
	}
	pause := time.NewTicker(batchInterval)
	defer pause.Stop()
	for {
		for _, l := range s.all() {
			for b := l.batch(); b != nil; b = l.batch() {
				if stream.Send(b) != nil {
					return
				}
			}
		}
		select {
		case <-stream.Context().Done():
			return
		case <-s.wake:
		}
		select { // gathers the lines of a burst
		case <-stream.Context().Done():
			return
		case <-pause.C:
		}
	}
}

func (s *Shipper) receive(stream grpc.BidiStreamingClient[clusterpb.LogBatch, clusterpb.LogAck]) error {
	for {
		ack, err := stream.Recv()
		if err != nil {
			return clusterpb.Plain(err)
		}
		key := Key{ack.GetRun(), ack.GetAttempt(), ack.GetTask()}
		for _, l := range s.all() {
			if l.key == key {
				l.ack(ack.GetNext())
			}
		}
	}
}
