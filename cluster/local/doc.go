// Package local is the backend without an engine: each executor is an agent process on this machine. It is
// the default, for laptops, shared workstations and tests.
package local
