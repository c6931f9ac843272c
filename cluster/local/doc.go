// Package local is the backend that needs no cluster: every executor is an agent
// process on this machine. It is the embedded default, and what a laptop, a shared
// workstation and the tests use.
package local
