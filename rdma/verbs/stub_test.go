//go:build (cgo || verbs) && (amd64 || arm64)

package verbs_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/rdma/verbs"
	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// TestOpen: a library that is not there, and one that is not libibverbs.
func TestOpen(t *testing.T) {
	for library, want := range map[string]string{
		"libibverbs-of-nobody.so.1": "open libibverbs-of-nobody.so.1: libibverbs-of-nobody.so.1: " +
			"cannot open shared object file: No such file or directory",
		"libc.so.6": "undefined symbol: ibv_get_device_list",
	} {
		if _, err := verbs.Open(library); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", library, err)
		}
	}
}

func opened(t *testing.T) (*verbstest.Stub, *verbs.Library) {
	t.Helper()
	stub := verbstest.New(t)
	l, err := verbs.Open(stub.Path)
	if err != nil {
		t.Fatal(err)
	}
	return stub, l
}

// TestOpenDevice: among several, of fewer than were counted, and on a kernel without RDMA.
func TestOpenDevice(t *testing.T) {
	const noDevice = "there is no RDMA device stub_0: ibv_devices lists those of the host"
	stub, l := opened(t)
	for n, want := range map[int]string{0: noDevice, 1: "", 3: "", -1: noDevice} {
		stub.Devices(n)
		d, err := l.OpenDevice("stub_0")
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%d devices: %v", n, err)
		}
		if err == nil {
			d.Close()
		}
	}
	stub.IWARP()
	d, err := l.OpenDevice("stub_0")
	if err != nil || !d.IWARP || d.Name != "stub_0" {
		t.Fatalf("iWARP: %+v, %v", d, err)
	}
	d.Close()
	for errno, want := range map[syscall.Errno]string{
		unix.ENOSYS: noDevice, unix.EMFILE: "list the RDMA devices: too many open files",
	} {
		stub.Fail("ibv_get_device_list", errno)
		if _, err := l.OpenDevice("stub_0"); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}

// TestFailures: a function that fails is named with its reason, and nothing is left of what was made before.
func TestFailures(t *testing.T) {
	stub, l := opened(t)
	for function, want := range map[string]string{
		"ibv_open_device":         "open /dev/infiniband/uverbs0 of stub_0: permission denied",
		"ibv_query_port":          "query port 1 of stub_0: permission denied",
		"ibv_query_gid":           "query GID 1 of port 1 of stub_0: permission denied",
		"ibv_alloc_pd":            "protection domain of the RDMA device stub_0: permission denied",
		"ibv_reg_mr":              "register 4096 bytes with stub_0: permission denied",
		"ibv_create_comp_channel": "queue pair of the RDMA device stub_0: make the completion channel: permission denied",
		"ibv_create_cq":           "make the completion queue: permission denied", "ibv_create_qp": "make a queue pair " +
			"of the RDMA device stub_0: permission denied", "ibv_modify_qp": "state INIT: permission denied",
		"rtr": "(RTR): permission denied", "ibv_post_send": "post a write to stub_0: permission denied",
		"ibv_poll_cq":      "poll the completion queue of the RDMA device stub_0",
		"ibv_get_cq_event": "wait for completions of the RDMA device stub_0: permission denied",
	} {
		stub.Fail(function, unix.EACCES)
		if err := use(l, 64); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", function, err)
		}
		stub.Fail("", 0)
	}
	if err := use(l, 64); err != nil {
		t.Error(err)
	}
	stub.Fail("inline", unix.EINVAL)
	if err := use(l, 64); err != nil {
		t.Errorf("a device without inline writes: %v", err)
	}
}

// use makes two connected queue pairs, and writes by one into memory of the other.
func use(l *verbs.Library, size uint32) (err error) {
	closing := func(c interface{ Close() error }) { err = errors.Join(err, c.Close()) }
	device, err := l.OpenDevice("stub_0")
	if err != nil {
		return err
	}
	defer closing(device)
	port, err := device.Port(1)
	if err != nil {
		return err
	}
	gid, err := device.GID(port.Number, 1)
	if err != nil {
		return err
	}
	domain, err := device.NewDomain()
	if err != nil {
		return err
	}
	defer closing(domain)
	pages, err := verbs.Map(4096)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, verbs.Unmap(pages)) }()
	memory, err := domain.Register(pages, verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	defer closing(memory)
	var queues []*verbs.Queue
	for range 2 {
		q, err := domain.NewQueue(verbs.QueueConfig{Port: 1, Sends: 4, Receives: 4, Inline: 64})
		if err != nil {
			return err
		}
		defer closing(q)
		queues = append(queues, q)
	}
	for i, q := range queues {
		peer := verbs.Peer{Queue: queues[1-i].Number, Sequence: 7, GID: gid}
		if err := q.Connect(verbs.Path{
			MTU: port.MTU, Sequence: 7, GIDIndex: 1, IsGlobal: true, Peer: peer, Timeout: 14, Retries: 7,
		}); err != nil {
			return err
		}
	}
	if err := queues[1].PostReceives(1); err != nil {
		return err
	}
	if err := queues[1].Arm(); err != nil {
		return err
	}
	copy(pages, "written")
	w := verbs.Write{
		ID: 3, Local: memory.Address, LocalKey: memory.LocalKey, Size: size, Remote: memory.Address + 2048,
		RemoteKey: memory.RemoteKey, Notify: true, Immediate: 0x01020304, Signaled: true,
		Inline: int(size) <= queues[0].Inline,
	}
	if err := queues[0].Post(w); err != nil {
		return err
	}
	if err := queues[1].Wait(); err != nil {
		return err
	}
	for i, want := range []verbs.Completion{{ID: 3}, {Received: true, Length: size, Immediate: 0x01020304}} {
		got, err := queues[i].Poll(make([]verbs.Completion, 0, 16))
		if err != nil {
			return err
		}
		if len(got) != 1 || got[0].Status != 0 || i == 0 && got[0].ID != want.ID || i == 1 && got[0] != want {
			return errors.New("a completion is something else")
		}
	}
	if string(pages[2048:][:7]) != "written" {
		return errors.New("the data has not come")
	}
	return nil
}
