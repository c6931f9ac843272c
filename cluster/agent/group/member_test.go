package group

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/groups"
	"github.com/tfcluster/tfcluster/internal/handshake"
	"github.com/tfcluster/tfcluster/rdma/collective"
	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// longest is the longest time that a test waits for something that must happen.
const longest = 2 * time.Minute

// driver is a driver's service with a run of a number of workers.
type driver int

// GroupedRun implements groups.Runs.
func (d driver) GroupedRun(context.Context) (groups.Run, error) {
	run := groups.Run{ID: 1}
	for rank := range int(d) {
		run.Tasks = append(run.Tasks, groups.Task{Name: fmt.Sprintf("worker:%d", rank)})
	}
	return run, nil
}

// serve returns a client of a driver's service.
func (d driver) serve(t *testing.T) clusterpb.GroupsClient {
	t.Helper()
	server := grpc.NewServer()
	clusterpb.RegisterGroupsServer(server,
		groups.New(d, func(context.Context, string) (string, error) { return "executor", nil }))
	return serve(t, server)
}

// serve returns a client of a server.
func serve(t *testing.T, server *grpc.Server) clusterpb.GroupsClient {
	t.Helper()
	ln := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:driver", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return clusterpb.NewGroupsClient(conn)
}

// open opens the members of hosts.
func open(t *testing.T, hosts ...string) []*Member {
	t.Helper()
	return openWith(t, make([]*transport.VerbsSettings, len(hosts)), nil, hosts...)
}

// openWith is open with the RDMA port of each rank, and a function for the notes to the user.
func openWith(t *testing.T, rdma []*transport.VerbsSettings, note func(rank int, text string),
	hosts ...string,
) []*Member {
	t.Helper()
	return openAt(t, driver(len(hosts)).serve(t), rdma, note, hosts...)
}

// openAt is openWith with a client of the driver.
func openAt(t *testing.T, client clusterpb.GroupsClient, rdma []*transport.VerbsSettings,
	note func(rank int, text string), hosts ...string,
) []*Member {
	t.Helper()
	dir, err := os.MkdirTemp("", "member")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	authority, err := auth.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue("executor")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.CertPEM)
	var all []*Member
	for rank, host := range hosts {
		m, err := Open(t.Context(), Config{
			Run: 1, Task: fmt.Sprintf("worker:%d", rank), Host: host,
			Socket: filepath.Join(dir, fmt.Sprintf("group-%d.sock", rank)), Memory: 1 << 16, Address: "127.0.0.1",
			TLS: &tls.Config{
				Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
				MinVersion: tls.VersionTLS13,
			}, Client: client, Log: slog.New(slog.DiscardHandler), RDMA: rdma[rank],
			Note: func(text string) { note(rank, text) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		all = append(all, m)
	}
	return all
}

// program is a task's program.
type program struct {
	t      *testing.T
	member *Member
	conn   *net.UnixConn
	lines  *bufio.Reader
	memory map[int]*memory.Mapping
	rank   int
	slot   int
}

// start connects a program and waits for its group. It returns the last answer.
func start(t *testing.T, m *Member, key string) (*program, answer) {
	t.Helper()
	path, own := m.Socket()
	if key == "" {
		key = own
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &program{t: t, member: m, conn: conn, memory: map[int]*memory.Mapping{}}
	fmt.Fprintf(conn, `{"op":"open","key":%q}`+"\n"+`{"op":"join","seconds":20}`+"\n", key)
	return p, p.group()
}

// group receives the memory of the ranks of the host.
func (p *program) group() answer {
	var files []*os.File
	var text []byte
	for {
		for at := strings.IndexByte(string(text), '\n'); at >= 0; at = strings.IndexByte(string(text), '\n') {
			var a answer
			if err := json.Unmarshal(text[:at], &a); err != nil {
				p.t.Error(err)
			}
			text = text[at+1:]
			if a.Op != "memory" {
				p.rank, p.slot, p.lines = a.Rank, a.Slot, bufio.NewReader(io.MultiReader(bytes.NewReader(text), p.conn))
				return a
			}
			s, err := memory.Received(files[0], collective.Layout(a.Size/int64(a.Slots)))
			if err != nil {
				p.t.Fatal(err)
			}
			if p.memory[a.Rank], err = s.Map(); err != nil {
				p.t.Fatal(err)
			}
			p.t.Cleanup(func() { p.memory[a.Rank].Close(); s.Close() })
			files = files[1:]
		}
		buffer := make([]byte, 4096)
		n, more, err := memory.Receive(p.conn, buffer)
		if err != nil || n == 0 {
			return answer{}
		}
		text, files = append(text, buffer[:n]...), append(files, more...)
	}
}

// call makes a call with a vector and returns its result.
func (p *program) call(vector []int32, request string) ([]int32, answer) {
	p.t.Helper()
	err := p.memory[p.rank].Use(func(slots [][]byte) error {
		_, err := binary.Encode(slots[p.slot], binary.NativeEndian, vector)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(p.conn, `{"op":"call","type":"int32","reduce":"sum","seconds":20,"size":%d,%s}`+
		"\n", 4*len(vector), request)
	line, err := p.lines.ReadBytes('\n')
	var a answer
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		p.t.Error(err)
		return nil, a
	}
	var result []byte
	for _, part := range a.Parts {
		_ = p.memory[int(part[0])].Use(func(slots [][]byte) error {
			result = append(result, slots[part[1]][part[2]:part[2]+part[3]]...)
			return nil
		})
	}
	if a.Op == "done" {
		p.slot = 1 - p.slot
	}
	got := make([]int32, len(result)/4)
	_, _ = binary.Decode(result, binary.NativeEndian, got)
	return got, a
}

// each runs f for the program of every member at the same time.
func each(t *testing.T, all []*Member, f func(p *program, joined answer)) {
	t.Helper()
	var work sync.WaitGroup
	for _, m := range all {
		work.Go(func() {
			p, a := start(t, m, "")
			f(p, a)
		})
	}
	work.Wait()
}

// TestCalls: calls on one host, on several hosts, and on hosts with several ranks.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][]string{{"a"}, {"a", "a", "a"}, {"a", "b"}, {"a", "b", "a", "c"}} {
		t.Run(strings.Join(hosts, " "), func(t *testing.T) {
			t.Parallel()
			testCalls(t, open(t, hosts...))
		})
	}
}

func testCalls(t *testing.T, all []*Member) {
	t.Helper()
	n := int32(len(all))
	each(t, all, func(p *program, a answer) {
		if a.Op != "group" || len(a.Names) != len(all) {
			t.Errorf("joined: %+v", a)
			return
		}
		rank := int32(p.rank)
		for i := range int32(20) {
			if got, a := p.call([]int32{i, rank, 1}, `"kind":"all_reduce"`); fmt.Sprint(got) !=
				fmt.Sprint([]int32{i * n, n * (n - 1) / 2, n}) {
				t.Errorf("call %d of rank %d: %v, %+v", i, rank, got, a)
				return
			}
		}
		if got, a := p.call([]int32{rank}, fmt.Sprintf(`"kind":"broadcast","root":%d`, n-1)); len(got) != 1 || got[0] != n-1 {
			t.Errorf("broadcast: %v, %+v", got, a)
		}
		if got, a := p.call([]int32{rank, rank}, `"kind":"all_gather"`); len(got) != int(2*n) || got[2*n-1] != n-1 ||
			got[0] != 0 {
			t.Errorf("all_gather: %v, %+v", got, a)
		}
		if _, a := p.call(nil, `"kind":"no such call"`); a.Op != "failed" || !a.Again ||
			!strings.Contains(a.Reason, "no such call") {
			t.Errorf("%+v", a)
		}
		if _, a := p.call(nil, `"kind":"all_reduce"`); a.Op != "done" {
			t.Errorf("the barrier behind it: %+v", a)
		}
	})
}

// TestPortFull: connections without a first line do not keep another member from the port after their time limit.
func TestPortFull(t *testing.T) {
	t.Parallel()
	join := func(all []*Member) time.Duration {
		began := time.Now()
		each(t, all, func(_ *program, a answer) {
			if a.Op != "group" {
				t.Errorf("joined: %+v", a)
			}
		})
		return time.Since(began)
	}
	alone := join(open(t, "a", "b"))
	all := open(t, "a", "b")
	for range handshake.AtOnce() {
		conn, err := net.Dial("tcp", all[0].remote.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if took := join(all); took-alone > handshake.Timeout {
		t.Errorf("the members joined after %v, alone after %v: the other connections had timed out", took, alone)
	}
}

// TestWithoutKey: a program or a member without the key receives nothing.
func TestWithoutKey(t *testing.T) {
	t.Parallel()
	all := open(t, "a", "b")
	if _, a := start(t, all[0], "wrong"); a.Op != "" {
		t.Errorf("a program without the key got %+v", a)
	}
	path, _ := all[0].Socket()
	for _, line := range []string{
		`{"op":"peer","key":"wrong","rank":1}`, `{"op":"peer"}`, `{}`, "\x00", strings.Repeat("x", maxHello+2),
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(conn, line)
		_ = conn.SetReadDeadline(time.Now().Add(longest))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%.40q was answered", line)
		}
		conn.Close()
	}
	conn, err := tls.Dial("tcp", all[0].remote.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err == nil { // with TLS 1.3 the client is informed by its first read
		_ = conn.SetReadDeadline(time.Now().Add(longest))
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil {
		t.Error("a connection without a certificate was accepted")
	}
}
