// Package runfiles transfers the files of runs between executors with separate disks and the
// folder where a cluster stores its runs (--dir).
//
// In the driver, a Receiver stores files and serves them; in an agent, a Sender sends and a
// Mirror fetches. Append-only files (event files) are sent as they grow. All other files are
// transferred as complete sets: they are written as .part- files, verified, and renamed in an
// order in which no reader finds a file that refers to one that is not there yet.
package runfiles
