// Package runfiles carries the files of runs between executors that have disks of
// their own and the place where a cluster keeps its runs (--dir).
//
// A Keeper, in the driver, takes files in and gives them out; a Sender and a Mirror,
// in an agent, send and fetch. What only grows (event files) is sent as it grows.
// Everything else arrives whole: a set of files is put aside as .part- files, checked,
// and given its names in an order in which no reader finds a file that names another
// one before that is there.
package runfiles
