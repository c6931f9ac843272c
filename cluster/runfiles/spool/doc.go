// Package spool stores the runs of a cluster whose directory is on a remote file system (--dir
// hdfs://…). All files are written to a local folder first, so that the cluster never waits for
// the remote file system, and are uploaded from there: append-only files are appended to, all
// other files are written completely, in an order in which no reader finds a file that refers
// to one that is not there yet.
//
// The local folder belongs to the directory, not to the cluster: files that could not be
// uploaded before a cluster ended stay there until the next cluster with that directory uploads
// them. Files that exist only remotely (of earlier clusters, or evicted from the local folder)
// are listed and fetched when they are needed.
package spool
