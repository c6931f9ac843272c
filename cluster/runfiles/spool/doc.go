// Package spool keeps the runs of a cluster whose directory lies on a file system
// elsewhere (--dir hdfs://…). Everything is written to a folder of this host first, so
// that nothing in the cluster ever waits for the other file system, and carried over
// from there: what grows is appended, everything else arrives whole, in an order in
// which no reader finds a file that names another one before that is there.
//
// The folder belongs to the directory, not to the cluster: what could not be carried
// over by a cluster's end lies there until the next cluster with that directory
// carries it. Files that lie only elsewhere (of earlier clusters, or given up here to
// make room) are seen by their names and brought when they are needed.
package spool
