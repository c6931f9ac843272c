package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/agent/feed"
	"github.com/tfcluster/tfcluster/cluster/agent/group"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// taskService is what the agent runs for a task whose program asks for it on its control socket: a feed, or a part in
// a group. It outlives the program until the run ends: others may need what it has.
type taskService struct {
	start func() (service, error)

	mu      sync.Mutex
	running service // guarded by mu; nil: the program has not asked
	ended   bool    // guarded by mu; the program has
	closed  bool    // guarded by mu
}

// service listens on a socket for its program.
type service interface {
	// Socket returns the path of the socket and the key with which the program connects.
	Socket() (path, key string)
	// ProgramEnded notes that the program has ended.
	ProgramEnded()
	// Close ends the service.
	Close()
}

// taskServices are the services of a task.
type taskServices struct{ feed, group taskService }

func (s *taskServices) programEnded() {
	s.feed.programEnded()
	s.group.programEnded()
}

func (s *taskServices) close() {
	s.feed.close()
	s.group.close()
}

// open answers a program that asks for a service by an operation.
func (s *taskService) open(t *task, op string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ended { // what the program sent before it was killed may be read after its end
		return
	}
	if s.running == nil {
		running, err := s.start()
		if err != nil {
			t.sendControl(map[string]any{"op": op, "error": err.Error()})
			return
		}
		s.running = running
	}
	path, key := s.running.Socket()
	t.sendControl(map[string]any{"op": op, "socket": path, "key": key})
}

// programEnded notes that the task's process has ended.
func (s *taskService) programEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.running != nil {
		s.running.ProgramEnded()
	}
}

// close ends the service.
func (s *taskService) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.running != nil {
		s.running.Close()
		s.running = nil
	}
}

// socket returns a new path for a service's socket.
func (a *Agent) socket(kind string) string {
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails
	return filepath.Join(a.cfg.GetFolders().GetRuntimeDir(), kind+"-"+hex.EncodeToString(name)+".sock")
}

// openFeed makes the holder of a task.
func (a *Agent) openFeed(ctx context.Context, l *clusterpb.Launch) (service, error) {
	a.mu.Lock()
	memory := a.driver.memory
	a.mu.Unlock()
	return feed.Open(ctx, feed.Config{
		Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask(), Host: a.self.host, Memory: memory, Client: a.link.feeds,
		Log: a.log, Socket: a.socket("feed"),
	})
}

// openGroup makes a task a member of its group.
func (a *Agent) openGroup(ctx context.Context, t *task, l *clusterpb.Launch) (service, error) {
	secure, err := identityTLS(a.cfg.GetIdentity())
	if err != nil {
		return nil, err
	}
	secure.ClientAuth, secure.ClientCAs = tls.RequireAndVerifyClientCert, secure.RootCAs
	return group.Open(ctx, group.Config{
		Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask(), Host: sameHost(l.GetTask()), Socket: a.socket("group"),
		Address: a.self.address, TLS: secure, Client: a.link.groups, Log: a.log, RDMA: verbsOf(l.GetCollective()),
		Note: func(text string) { t.note(text, true) },
	})
}

// verbsOf returns the settings of a port; nil for none.
func verbsOf(p *clusterpb.CollectivePort) *transport.VerbsSettings {
	if p == nil {
		return nil
	}
	s := transport.DefaultVerbs(p.GetDevice(), int(p.GetPort()), int(p.GetGid()))
	for _, set := range []struct {
		value *int32
		to    *int
	}{{p.Timeout, &s.Timeout}, {p.Retries, &s.Retries}, {p.TrafficClass, &s.TrafficClass}, {
		p.ServiceLevel, &s.ServiceLevel,
	}} {
		if set.value != nil {
			*set.to = int(*set.value)
		}
	}
	return &s
}

// testHosts is the variable by which tests on one machine use the way between hosts: the executors count as so many
// hosts, in turn.
const testHosts = "TFCLUSTER_TEST_HOSTS"

// sameHost returns a text that is equal for processes of one user that see each other's unix sockets: they run on one
// kernel, and see the same mounts.
func sameHost(task string) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // "" in a container that hides it: the mounts differ, too
	mounts, _ := os.Readlink("/proc/self/ns/mnt")
	host := fmt.Sprintf("%s %s %d", strings.TrimSpace(string(boot)), mounts, os.Getuid())
	if n, err := strconv.Atoi(os.Getenv(testHosts)); err == nil && n > 0 {
		_, index, _ := strings.Cut(task, ":")
		i, _ := strconv.Atoi(index)
		host += fmt.Sprint(" ", i%n)
	}
	return host
}
