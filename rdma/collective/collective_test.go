package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// layouts are the hosts of groups.
var layouts = [][][]int{
	{{0}}, {{0, 1}}, {{0, 1, 2, 3}}, {{0}, {1}}, {{0}, {1}, {2}}, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}, {
		{0, 3}, {1}, {2, 4, 5},
	},
}

// TestCalls: random calls give every rank the same bits, which are those of a plain computation.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, hosts := range layouts {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			t.Parallel()
			testCalls(t, "tcp", hosts)
		})
	}
}

func testCalls(t *testing.T, between string, hosts [][]int) {
	t.Helper()
	const slotSize = 1 << 16
	all := groupsOver(t, between, slotSize, hosts...)
	random := rand.New(rand.NewPCG(uint64(len(hosts)), uint64(len(all))))
	var calls []Call
	for range 200 {
		calls = append(calls, anyCall(random, hosts, len(all), slotSize))
	}
	results := make([][][]byte, len(all))
	var work sync.WaitGroup
	for _, m := range all {
		work.Go(func() {
			own := rand.New(rand.NewPCG(7, uint64(m.rank)))
			for n, call := range calls {
				time.Sleep(time.Duration(own.IntN(100)) * time.Microsecond)
				ctx, cancel := context.WithTimeout(t.Context(), longest)
				got, err := m.call(ctx, all, call, vector(n, m.rank, call))
				cancel()
				if err != nil {
					t.Errorf("%s of rank %d: %v", call, m.rank, err)
					return
				}
				results[m.rank] = append(results[m.rank], got)
			}
		})
	}
	if work.Wait(); t.Failed() {
		return
	}
	for n, call := range calls {
		for rank := range all {
			if !bytes.Equal(results[rank][n], results[0][n]) {
				t.Fatalf("call %d, %s: rank %d has other bits than rank 0", n, call, rank)
			}
		}
		if want := expected(n, call, hosts, len(all)); !bytes.Equal(results[0][n], want) {
			t.Fatalf("call %d, %s: the result differs", n, call)
		}
	}
}

// anyCall returns a random call, now and then with no data or with all that there is room for.
func anyCall(random *rand.Rand, hosts [][]int, ranks int, slotSize int64) Call {
	kinds := len(kinds)
	if len(hosts) > 1 {
		kinds = int(Exchange)
	}
	c := Call{Kind: Kind(random.IntN(kinds)), Size: random.Int64N(slotSize)}
	switch random.IntN(5) {
	case 0:
		c.Size = 0
	case 1:
		c.Size = slotSize
	}
	switch c.Kind {
	case AllReduce:
		c.Type, c.Op = []reduce.Type{reduce.Int32, reduce.Int64, reduce.Float32, reduce.BFloat16}[random.IntN(4)],
			reduce.Op(random.IntN(3))
		c.Size -= c.Size % int64(c.Type.Size())
	case Broadcast:
		c.Root = random.IntN(ranks)
	case AllGather:
		c.Size /= int64(ranks)
	case Exchange:
		c.Size -= c.Size % int64(c.Type.Size())
	}
	return c
}

// vector is what a rank has at a call. Numbers are small integers, whose sums are exact in every type.
func vector(n, rank int, c Call) []byte {
	random := rand.New(rand.NewPCG(uint64(n), uint64(rank)))
	v := make([]byte, c.Size)
	if c.Kind == AllReduce && c.Type != reduce.Int32 && c.Type != reduce.Int64 {
		for i := c.Type.Size() - 1; i < len(v); i += c.Type.Size() { // powers of two, by the exponent
			v[i] = byte(0x3f + random.IntN(2))
		}
		return v
	}
	for i := range v {
		v[i] = byte(random.IntN(256))
	}
	return v
}

// expected is the result of a call.
func expected(n int, c Call, hosts [][]int, ranks int) []byte {
	switch c.Kind {
	case Broadcast:
		return vector(n, c.Root, c)
	case AllGather, Exchange:
		var all []byte
		for rank := range ranks {
			all = append(all, vector(n, rank, c)...)
		}
		return all
	}
	var sources [][]byte
	for rank := range ranks {
		sources = append(sources, vector(n, rank, c))
	}
	want := make([]byte, c.Size)
	if err := reduce.Into(want, sources, c.Type, c.Op); err != nil {
		panic(err)
	}
	return want
}

// TestDifferentCalls: ranks that make different calls fail with both.
func TestDifferentCalls(t *testing.T) {
	t.Parallel()
	sum := Call{Kind: AllReduce, Type: reduce.Float32, Size: 16, Form: 1}
	other := sum
	other.Form = 2
	mean := sum
	mean.Op = reduce.Mean
	for want, theirs := range map[string]Call{
		"call 1 of worker:0 is all_reduce(sum) of 4 float32, of worker:1 it is all_gather of 16 bytes: " +
			"all tasks must make the same calls in the same order": {
			Kind: AllGather, Size: 16,
		},
		"call 1 is all_reduce(sum) of 4 float32 on worker:0 and worker:1, but their arrays have different types or shapes: " +
			"give the same on all tasks": other,
		"call 1 of worker:0 is all_reduce(sum) of 4 float32, of worker:1 it is all_reduce(mean) of 4 float32: " +
			"all tasks must make the same calls in the same order": mean,
	} {
		for _, hosts := range [][][]int{{{0, 1}}, {{0}, {1}}} {
			all := groups(t, 4096, hosts...)
			calls := []Call{sum, theirs}
			errs := both(t, all, func(m *member) error {
				_, err := m.call(t.Context(), all, calls[m.rank], make([]byte, 16))
				return err
			})
			if errs[0] == nil || errs[0].Error() != want {
				t.Errorf("%v: %v", hosts, errs[0])
			}
			if errs[1] == nil {
				t.Errorf("%v: worker:1 goes on", hosts)
			}
		}
	}
}

// both runs f for every rank at once.
func both(t *testing.T, all []*member, f func(*member) error) []error {
	t.Helper()
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for _, m := range all {
		work.Go(func() { errs[m.rank] = f(m) })
	}
	work.Wait()
	return errs
}

// TestMissing: a call whose time is over names the ranks that did not arrive, and one that has left is named at once.
func TestMissing(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][][]int{{{0, 1, 2}}, {{0}, {1}, {2}}} {
		all := groups(t, 4096, hosts...)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := all[0].call(ctx, all, Call{}, nil)
		if err == nil || !strings.Contains(err.Error(), "barrier: worker:1") ||
			!strings.Contains(err.Error(), "did not arrive: context deadline exceeded") {
			t.Errorf("%v: %v", hosts, err)
		}
		if _, err := all[0].call(t.Context(), all, Call{}, nil); err == nil ||
			!strings.Contains(err.Error(), "an earlier call failed: barrier") {
			t.Errorf("%v, then: %v", hosts, err)
		}
		all = groups(t, 4096, hosts...)
		go all[1].Close()
		if _, err := all[0].call(t.Context(), all, Call{}, nil); err == nil ||
			!strings.HasPrefix(err.Error(), "worker:1 has left the group") {
			t.Errorf("%v: %v", hosts, err)
		}
	}
}

// TestLast: a rank that has its result of the last call leaves, while others wait for slower ones: they get theirs.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, hosts := range layouts {
		for range 20 {
			testLast(t, "tcp", hosts)
		}
	}
}

func testLast(t *testing.T, between string, hosts [][]int) {
	t.Helper()
	all := groupsOver(t, between, 4096, hosts...)
	for rank, err := range both(t, all, func(m *member) error {
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		_, err := m.call(t.Context(), all, Call{Type: reduce.Int32, Size: 4096}, make([]byte, 4096))
		m.Close()
		return err
	}) {
		if err != nil {
			t.Errorf("%v: rank %d: %v", hosts, rank, err)
		}
	}
}

// TestCannotBeMade: a call that cannot be made is refused before others hear of it, and the group goes on.
func TestCannotBeMade(t *testing.T) {
	t.Parallel()
	all := groups(t, 4096, []int{0, 1})
	for text, c := range map[string]Call{
		"all_reduce(sum) of 1025 float32: the vectors have more bytes than the memory of a collective call has room " +
			"for, 4096": {Size: 4100},
		"6 bytes, and its last element would be cut: each has 4":                         {Size: 6},
		"broadcast of 1 bytes from rank 2: root must be the rank of a task, from 0 to 1": {Kind: Broadcast, Size: 1, Root: 2},
		"all_gather of 2049 bytes: the vectors have more bytes":                          {Kind: AllGather, Size: 2049},
		"all_gather of 4611686018427387904 bytes: the vectors have more bytes":           {Kind: AllGather, Size: 1 << 62},
		"kind 9, type 0 or operation 0 is unknown":                                       {Kind: 9},
	} {
		if _, err := all[0].Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, err := range both(t, all, func(m *member) error {
		_, err := m.call(t.Context(), all, Call{Kind: Broadcast, Size: 4096}, make([]byte, 4096))
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkAllReduce(b *testing.B) {
	two, three := [][]int{{0}, {1}}, [][]int{{0}, {1}, {2}}
	for _, c := range []struct {
		name, between string
		hosts         [][]int
	}{
		{"one host/2", "", [][]int{{0, 1}}},
		{"one host/4", "", [][]int{{0, 1, 2, 3}}},
		{"TCP/2", "tcp", two},
		{"TCP/3", "tcp", three},
		{"TLS/2", "tls", two},
		{"TLS/3", "tls", three},
		{"RDMA/2", byRDMA, two},
	} {
		for _, size := range []int64{4 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d", c.name, size), func(b *testing.B) {
				all := groupsOver(b, c.between, 16<<20, c.hosts...)
				b.SetBytes(size)
				var work sync.WaitGroup
				b.ResetTimer()
				for _, m := range all {
					work.Go(func() {
						for range b.N {
							if _, err := m.Run(b.Context(), Call{Type: reduce.Float32, Size: size}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				work.Wait()
			})
		}
	}
}

// TestNewFails: a group that cannot be made closes the links that it was given.
func TestNewFails(t *testing.T) {
	t.Parallel()
	var own [2]*memory.Mapping
	var links [2]transport.Link
	var work sync.WaitGroup
	for i, conn := range pair(t, "tcp") {
		s, err := memory.New("tfcluster-collective-test", Layout(4096)...)
		if err != nil {
			t.Fatal(err)
		}
		if own[i], err = s.Map(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { own[i].Close(); s.Close() })
		region, err := transport.TCP{}.Register(own[i])
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			if links[i], err = (transport.TCP{}).Connect(t.Context(), conn, region); err != nil {
				t.Error(err)
			}
		})
	}
	if work.Wait(); t.Failed() {
		return
	}
	t.Cleanup(func() { links[0].Close(); links[1].Close() })
	_, err := New(Config{Names: []string{"worker:0", "worker:1"}, Hosts: [][]int{{0, 1}}, Own: own[0], Peers: map[int]Peer{
		1: {Link: links[0]},
	}})
	if err == nil || err.Error() != "the memory of worker:1 is mapped here: false; but it runs on this host: true" {
		t.Errorf("%v", err)
	}
	if err := links[0].Err(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("its link: %v", err)
	}
}
