// Package errtext has what error texts and lines of tasks share: the request to report an error that only a fault of
// tfcluster itself can cause, what to do about causes that the operating system and the network name, and the lines
// that mean nothing to the user.
package errtext
