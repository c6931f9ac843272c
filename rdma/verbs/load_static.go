//go:build !((cgo || verbs) && (amd64 || arm64))

package verbs

import "errors"

// A program that is linked statically has no dynamic loader: package purego would make it need the C library of the
// machine. The tag verbs does so in a program that is built without cgo.

func load(string, []string) ([]uintptr, error) {
	return nil, errors.New("this tfcluster is linked statically and cannot open libraries: " +
		"the tfcluster of the wheel (pip install tfcluster) can")
}

func call(uintptr, ...uintptr) uintptr { panic("no function has an address") }
