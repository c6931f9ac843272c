package collective

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/rdma/reduce"
)

// moments is the number of faults of each kind in each layout.
const moments = 8

// faults are what may happen to a rank in the middle of a call.
var faults = map[string]func(t *testing.T, m *member, random *rand.Rand){
	// as where its process is killed: all its connections end
	"killed": func(_ *testing.T, m *member, _ *rand.Rand) {
		for _, conn := range m.conns {
			_ = conn.Close()
		}
	},
	"reset": func(_ *testing.T, m *member, random *rand.Rand) {
		conn := m.anyConn(random)
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn() // without the alert close_notify of TLS
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it ends with RST, and loses what is on its way
		}
		_ = conn.Close()
	},
	// the rest is half a record
	"garbage": func(_ *testing.T, m *member, random *rand.Rand) {
		conn := m.anyConn(random)
		_, _ = conn.Write([]byte{1, 2, 3})
		_ = conn.Close()
	},
	"leaves": func(_ *testing.T, m *member, _ *rand.Rand) { m.Close() },
}

// anyConn returns one of a rank's connections.
func (m *member) anyConn(random *rand.Rand) net.Conn {
	n := random.IntN(len(m.conns))
	for _, conn := range m.conns {
		if n--; n < 0 {
			return conn
		}
	}
	return nil
}

// TestFaults: whatever happens to a rank at a random moment, every call of every rank ends, those that succeed have the
// right sum, and those that fail say which rank is lost. Nothing stays open. It is not parallel: it
// counts what is open.
func TestFaults(t *testing.T) { testFaults(t, faults, "tcp", "tls") }

func testFaults(t *testing.T, faults map[string]func(*testing.T, *member, *rand.Rand), between ...string) {
	t.Helper()
	before := opened(t)
	for name, fault := range faults {
		for _, hosts := range layouts[1:] {
			if len(hosts) == 1 && between[0] == byRDMA {
				continue
			}
			t.Run(fmt.Sprint(name, hosts), func(t *testing.T) {
				for moment := range moments {
					random := rand.New(rand.NewPCG(uint64(moment), uint64(len(hosts))))
					t.Run("", func(t *testing.T) {
						faulty(t, groupsOver(t, between[moment%len(between)], 1<<18, hosts...), random, fault)
					})
				}
			})
		}
	}
	deadline := time.Now().Add(longest)
	for opened(t) != before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if after := opened(t); after != before {
		t.Errorf("open before: %s; after: %s", before, after)
	}
}

// faulty has all ranks make calls until one fails, and a fault happen to a rank in the middle.
func faulty(t *testing.T, all []*member, random *rand.Rand, fault func(*testing.T, *member, *rand.Rand)) {
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	var mu sync.Mutex
	over := map[string]bool{} // ranks that may be missed
	victim := all[random.IntN(len(all))]
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for _, m := range all {
		work.Go(func() {
			for n := uint32(0); errs[m.rank] == nil; n++ {
				call := Call{Type: reduce.Int32, Size: []int64{0, 4, 1 << 10, 1 << 18}[n%4]}
				var sum []byte
				if sum, errs[m.rank] = m.call(ctx, all, call, numbers32(call.Size, n+uint32(m.rank))); errs[m.rank] != nil {
					break
				}
				if want := uint32(len(all))*n + uint32(len(all)*(len(all)-1)/2); !bytes.Equal(sum, numbers32(call.Size, want)) {
					t.Errorf("call %d of rank %d has a wrong sum", n, m.rank)
				}
			}
			lost, _ := errors.AsType[*LostError](errs[m.rank])
			mu.Lock()
			defer mu.Unlock()
			if m != victim && (lost == nil || !over[lost.Name]) {
				_, neighbour := m.conns[victim.rank]
				t.Errorf("rank %d (neighbour of rank %d: %t), where %v are over: %v", m.rank, victim.rank, neighbour, over,
					errs[m.rank])
			}
			over[m.name(m.rank)] = true
			go m.Close() // as its program ends
		})
	}
	time.Sleep(time.Duration(random.IntN(4000)) * time.Microsecond)
	mu.Lock()
	over[victim.name(victim.rank)] = true
	mu.Unlock()
	fault(t, victim, random)
	work.Wait()
}

// numbers32 returns so many bytes of a number.
func numbers32(size int64, n uint32) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, n), int(size/4))
}

// opened says what this process has open of a test: sockets, segments and mappings.
func opened(t *testing.T) string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil &&
			(strings.HasPrefix(to, "socket:") || strings.Contains(to, "memfd")) {
			files++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, pinned, _ := strings.Cut(string(status), "VmPin:") // what devices know
	pinned, _, _ = strings.Cut(pinned, "\n")
	return fmt.Sprintf("%d files, %d mappings, pinned: %s", files,
		strings.Count(string(maps), "tfcluster-collective-test"), strings.TrimSpace(pinned))
}
