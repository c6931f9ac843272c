// Package magics is %tfcluster: the verbs a notebook's cells, the command line and
// the Python API have in common.
//
// One table (table.go) says which verbs and options there are. It drives parsing
// and usage errors, help, completion, Shift-Tab, the command line and the
// reference in the documentation. Each verb has a file of its own, written over
// the Control service of a cluster's driver.
//
// A [Session] is what one kernel, gate or command keeps: the clusters it is
// attached to, the last one, and who it is. It runs cells made of magics alone
// ([Session.Run]), words ([Session.RunArgv]) and, through a [Gate], what Python
// code asks for. It emits through an [Output] and reaches Python's objects through
// a [Python]; both are given by whoever runs it.
package magics
