// Package yarn runs the notebooks of YARN on a real Hadoop, as their readers do: the
// kernel installed, one notebook after the other, each in a kernel of its own.
package yarn
