// Package yarn runs the notebooks about YARN on a real Hadoop as users do: with the installed kernel, one
// notebook after the other, each in a new kernel.
package yarn
