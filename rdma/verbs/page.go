package verbs

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const wordSize = unsafe.Sizeof(uintptr(0))

// Map returns zeroed memory that is not Go's: it does not move, and a child process does not take its pages from
// a device when one of both writes to them (it is shared). Unmap frees it.
func Map(size int) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return memory, nil
}

// Unmap frees memory of Map, which nothing uses any more.
func Unmap(memory []byte) error {
	if err := unix.Munmap(memory); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(memory), err)
	}
	return nil
}

// query calls a function that fills a structure at an address, and returns the structure.
func query[T any](fill func(address uintptr) error) (T, error) {
	var zero T
	memory, err := Map(int(unsafe.Sizeof(zero)))
	if err != nil {
		return zero, err
	}
	defer func() { _ = unix.Munmap(memory) }() // fails for no mapping that Map has made
	if err := fill(addressOf(memory)); err != nil {
		return zero, err
	}
	return *at[T](addressOf(memory)), nil
}
