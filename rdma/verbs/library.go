package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// DefaultLibrary is the name by which the dynamic loader finds libibverbs.
const DefaultLibrary = "libibverbs.so.1"

// Library is libibverbs. It is never unloaded: libraries of devices that it has opened do not expect it.
type Library struct {
	functions
	errno uintptr // __errno_location
}

// functions are addresses of the library's functions.
type functions struct {
	getDeviceList, freeDeviceList, openDevice, closeDevice              uintptr
	queryPort, queryGID, statusText                                     uintptr
	allocDomain, deallocDomain, registerMemory, deregister              uintptr
	createChannel, destroyChannel, createCQ, destroyCQ                  uintptr
	getEvent, acknowledgeEvents, createQueue, destroyQueue, modifyQueue uintptr
}

// Open opens libibverbs, by its path or by a name that the dynamic loader finds.
func Open(library string) (*Library, error) {
	l := &Library{}
	f := &l.functions
	table := []struct {
		name    string
		address *uintptr
	}{
		{"ibv_get_device_list", &f.getDeviceList},
		{"ibv_free_device_list", &f.freeDeviceList},
		{"ibv_open_device", &f.openDevice},
		{"ibv_close_device", &f.closeDevice},
		{"ibv_query_port", &f.queryPort},
		{"ibv_query_gid", &f.queryGID},
		{"ibv_wc_status_str", &f.statusText},
		{"ibv_alloc_pd", &f.allocDomain},
		{"ibv_dealloc_pd", &f.deallocDomain},
		{"ibv_reg_mr", &f.registerMemory},
		{"ibv_dereg_mr", &f.deregister},
		{"ibv_create_comp_channel", &f.createChannel},
		{"ibv_destroy_comp_channel", &f.destroyChannel},
		{"ibv_create_cq", &f.createCQ},
		{"ibv_destroy_cq", &f.destroyCQ},
		{"ibv_get_cq_event", &f.getEvent},
		{"ibv_ack_cq_events", &f.acknowledgeEvents},
		{"ibv_create_qp", &f.createQueue},
		{"ibv_destroy_qp", &f.destroyQueue},
		{"ibv_modify_qp", &f.modifyQueue},
		{"__errno_location", &l.errno},
	}
	names := make([]string, len(table))
	for i, t := range table {
		names[i] = t.name
	}
	addresses, err := load(library, names)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", library, err)
	}
	for i, t := range table {
		*t.address = addresses[i]
	}
	return l, nil
}

// pointer calls a function that returns an address, or 0 and sets errno.
func (l *Library) pointer(function uintptr, arguments ...uintptr) (uintptr, error) {
	runtime.LockOSThread() // errno is the thread's
	defer runtime.UnlockOSThread()
	errno := at[int32](call(l.errno))
	*errno = 0
	if result := call(function, arguments...); result != 0 {
		return result, nil
	}
	if *errno == 0 {
		return 0, errors.New("the library gives no reason")
	}
	return 0, syscall.Errno(*errno)
}

// status calls a function that returns 0 or an error number. Some functions of old libraries return -1.
func (l *Library) status(function uintptr, arguments ...uintptr) error {
	switch n := int32(call(function, arguments...)); {
	case n == 0:
		return nil
	case n > 0:
		return syscall.Errno(n)
	default:
		return fmt.Errorf("the library returns %d", n)
	}
}

// StatusText describes the status of a completion.
func (l *Library) StatusText(status uint32) string {
	return textAt(call(l.statusText, uintptr(status)))
}
