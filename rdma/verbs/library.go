package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// DefaultLibrary is the name by which the dynamic loader finds libibverbs.
const DefaultLibrary = "libibverbs.so.1"

// function is one of the library's.
type function int

const (
	getDeviceList function = iota
	freeDeviceList
	openDevice
	closeDevice
	queryPort
	queryGID
	statusText
	allocDomain
	deallocDomain
	registerMemory
	deregister
	createChannel
	destroyChannel
	createCQ
	destroyCQ
	getEvent
	acknowledgeEvents
	createQueue
	destroyQueue
	modifyQueue
	errnoLocation
	functions // their number
)

var functionNames = [functions]string{
	getDeviceList:     "ibv_get_device_list",
	freeDeviceList:    "ibv_free_device_list",
	openDevice:        "ibv_open_device",
	closeDevice:       "ibv_close_device",
	queryPort:         "ibv_query_port",
	queryGID:          "ibv_query_gid",
	statusText:        "ibv_wc_status_str",
	allocDomain:       "ibv_alloc_pd",
	deallocDomain:     "ibv_dealloc_pd",
	registerMemory:    "ibv_reg_mr",
	deregister:        "ibv_dereg_mr",
	createChannel:     "ibv_create_comp_channel",
	destroyChannel:    "ibv_destroy_comp_channel",
	createCQ:          "ibv_create_cq",
	destroyCQ:         "ibv_destroy_cq",
	getEvent:          "ibv_get_cq_event",
	acknowledgeEvents: "ibv_ack_cq_events",
	createQueue:       "ibv_create_qp",
	destroyQueue:      "ibv_destroy_qp",
	modifyQueue:       "ibv_modify_qp",
	errnoLocation:     "__errno_location",
}

// Library is libibverbs. It is never unloaded: libraries of devices that it has opened do not expect it.
type Library struct{ addresses []uintptr }

// Open opens libibverbs, by its path or by a name that the dynamic loader finds.
func Open(library string) (*Library, error) {
	addresses, err := load(library, functionNames[:])
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", library, err)
	}
	return &Library{addresses}, nil
}

// call calls a function.
func (l *Library) call(f function, arguments ...uintptr) uintptr {
	return call(l.addresses[f], arguments...)
}

// pointer calls a function that returns an address, or 0 and sets errno.
func (l *Library) pointer(f function, arguments ...uintptr) (uintptr, error) {
	return l.checked(func(result uintptr) bool { return result != 0 }, f, arguments...)
}

// negative calls a function that returns 0, or -1 and sets errno.
func (l *Library) negative(f function, arguments ...uintptr) error {
	_, err := l.checked(func(result uintptr) bool { return int32(result) == 0 }, f, arguments...)
	return err
}

// checked calls a function that sets errno where its result is not ok.
func (l *Library) checked(ok func(uintptr) bool, f function, arguments ...uintptr) (uintptr, error) {
	runtime.LockOSThread() // errno is the thread's
	defer runtime.UnlockOSThread()
	errno := at[int32](l.call(errnoLocation))
	*errno = 0
	result := l.call(f, arguments...)
	switch {
	case ok(result):
		return result, nil
	case *errno == 0:
		return 0, errors.New("libibverbs gives no reason")
	}
	return 0, syscall.Errno(*errno)
}

// status calls a function that returns 0 or an error number. Some functions of old libraries return -1.
func (l *Library) status(f function, arguments ...uintptr) error {
	switch n := int32(l.call(f, arguments...)); {
	case n == 0:
		return nil
	case n > 0:
		return syscall.Errno(n)
	default:
		return fmt.Errorf("libibverbs returns %d", n)
	}
}

// StatusText describes the status of a completion.
func (l *Library) StatusText(status uint32) string {
	return textAt(l.call(statusText, uintptr(status)))
}
