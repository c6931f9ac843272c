package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// processRank is the variable by which a test runs rank 1 as a process: NETWORK ADDRESS TEST.
const processRank = "TFCLUSTER_TEST_COLLECTIVE_RANK"

// processNetworks are the networks of ranks in processes of their own: the stub has no way between processes.
func processNetworks() []string {
	if os.Getenv(realDevice) != "" {
		return []string{"tcp", byRDMA}
	}
	return []string{"tcp"}
}

// join returns a rank of two, each on a host of its own, at one end of a connection.
func join(t *testing.T, network string, rank int, conn net.Conn, vector int64) *member {
	t.Helper()
	var p transport.Provider = transport.TCP{}
	if network == byRDMA {
		p = openVerbs(t)
	}
	s, err := memory.New("tfcluster-collective-test", Layout(vector)...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := s.Map()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close(); s.Close() })
	region, err := p.Register(own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { region.Close() })
	link, err := p.Connect(t.Context(), conn, region)
	if err != nil {
		t.Fatal(err)
	}
	if via, _ := transport.Via(link); network == byRDMA && !strings.HasPrefix(via, "RDMA by ") {
		t.Fatalf("the link is %s", via)
	}
	g, err := New(Config{
		Rank: rank, Names: []string{"worker:0", "worker:1"}, Hosts: [][]int{{0}, {1}}, Own: own,
		Peers: map[int]Peer{1 - rank: {Link: link}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return &member{Group: g, rank: rank, own: own}
}

// process starts rank 1, which does what its test says, and returns rank 0.
func process(t *testing.T, network, test string, vector int64) (*member, *exec.Cmd) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRank1$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", processRank, network, ln.Addr(), test))
	cmd.Stderr, cmd.Stdout = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return join(t, network, 0, conn, vector), cmd
}

// TestRank1 is rank 1 of the tests with processes.
func TestRank1(t *testing.T) {
	var network, address, test string
	if n, _ := fmt.Sscan(os.Getenv(processRank), &network, &address, &test); n != 3 {
		t.Skip("other tests run it as a process of its own")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if test == "train" {
		train(t, join(t, network, 1, conn, vectorSize))
		return
	}
	m := join(t, network, 1, conn, 1<<20)
	for err == nil {
		_, err = m.Run(t.Context(), Call{Type: reduce.Int32, Size: 1 << 20})
	}
	if lost, _ := errors.AsType[*LostError](err); lost == nil || lost.Name != "worker:0" {
		t.Error(err)
	}
}

// TestKilled: a rank that is killed in the middle of its writes is named at once.
func TestKilled(t *testing.T) {
	for _, network := range processNetworks() {
		t.Run(network, func(t *testing.T) {
			m, cmd := process(t, network, "loop", 1<<20)
			call := Call{Type: reduce.Int32, Size: 1 << 20}
			var err error
			for n := 0; err == nil; n++ {
				if n == 3 {
					time.AfterFunc(5*time.Millisecond, func() { _ = cmd.Process.Kill() })
				}
				_, err = m.Run(t.Context(), call)
			}
			if lost, _ := errors.AsType[*LostError](err); lost == nil || lost.Name != "worker:1" {
				t.Error(err)
			}
		})
	}
}

// TestStopped: a rank that is stopped is named when the time of the call is over.
func TestStopped(t *testing.T) {
	for _, network := range processNetworks() {
		t.Run(network, func(t *testing.T) {
			m, cmd := process(t, network, "loop", 1<<20)
			call := Call{Type: reduce.Int32, Size: 1 << 20}
			var err error
			for n := 0; err == nil; n++ {
				if n == 3 {
					if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = m.Run(ctx, call)
				cancel()
			}
			if late, _ := errors.AsType[*LateError](err); late == nil || !slices.Equal(late.Waits, []string{"worker:1"}) {
				t.Error(err)
			}
		})
	}
}

// The model: a linear one, of which both ranks have half of the records.
const (
	features   = 1000
	records    = 64 // of each rank
	steps      = 20
	rate       = 1.0 / (2 * records * features)
	vectorSize = (8*features + 4095) / 4096 * 4096 // bytes, with room for a gradient
)

// gradient returns the sum of the gradients of a rank's records: the squared error's by the weights.
func gradient(rank int, weights []float64) []float64 {
	sum := make([]float64, features)
	x := make([]float64, features)
	for n := range records {
		y, predicted := 0.0, 0.0
		for i := range x {
			x[i] = float64((n+rank*records)*(i+3)%17-8) / 3
			y += x[i] * float64(i%5)
			predicted += x[i] * weights[i]
		}
		for i := range x {
			sum[i] += 2 * (predicted - y) * x[i]
		}
	}
	return sum
}

// trained returns the weights after all steps, where add returns the sum of both ranks' gradients.
func trained(add func(weights []float64) []float64) []float64 {
	weights := make([]float64, features)
	for range steps {
		for i, g := range add(weights) {
			weights[i] -= rate * g
		}
	}
	return weights
}

// train trains with the other rank, checks that both have the same weights, and returns them.
func train(t *testing.T, m *member) []float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	all := []*member{m, m} // the result is in the own memory
	call := Call{Type: reduce.Float64, Size: 8 * features}
	weights := trained(func(weights []float64) []float64 {
		vector, _ := binary.Append(nil, binary.NativeEndian, gradient(m.rank, weights))
		result, err := m.call(ctx, all, call, vector)
		if err != nil {
			t.Fatal(err)
		}
		sum := make([]float64, features)
		_, _ = binary.Decode(result, binary.NativeEndian, sum)
		return sum
	})
	for _, op := range []reduce.Op{reduce.Min, reduce.Max} {
		call.Op = op
		own, _ := binary.Append(nil, binary.NativeEndian, weights)
		if both, err := m.call(ctx, all, call, own); err != nil || string(both) != string(own) {
			t.Errorf("the ranks have different weights, %v", err)
		}
	}
	return weights
}

// TestTraining: two ranks that train a model have the weights of one process with all records, to the last bit.
func TestTraining(t *testing.T) {
	alone := trained(func(weights []float64) []float64 {
		sum := gradient(0, weights)
		for i, g := range gradient(1, weights) {
			sum[i] += g
		}
		return sum
	})
	if alone[1] == 0 {
		t.Fatal("nothing was learned")
	}
	for _, network := range processNetworks() {
		t.Run(network, func(t *testing.T) {
			m, cmd := process(t, network, "train", vectorSize)
			if weights := train(t, m); !slices.Equal(weights, alone) {
				t.Error("the weights are not those of one process")
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("rank 1: %v", err)
			}
		})
	}
}
