//go:build (cgo || verbs) && (amd64 || arm64)

package verbs

import "github.com/ebitengine/purego"

// load opens a library and returns the addresses of functions, in the order of their names.
func load(library string, names []string) ([]uintptr, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	addresses := make([]uintptr, len(names))
	for i, name := range names {
		if addresses[i], err = purego.Dlsym(handle, name); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// call calls a C function whose arguments and result are integers and addresses.
func call(function uintptr, arguments ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(function, arguments...)
	return result
}
