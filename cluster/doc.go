// Package cluster holds the nouns of a TensorFlow cluster and the driver's side
// of it: what was asked for (Request), what an engine granted (Allocation), the
// pure lifecycle that decides what happens next, the coordinator that agents dial
// into, the store of everything that tasks wrote, and the client that a notebook
// or a shell uses.
//
//	Cluster      reserve to shutdown
//	Allocation   what a Backend was granted
//	Executor     a place in it; the agent is our process there
//	Reservation  an agent's claim, keyed by executor: a new attempt replaces
//	Role, Task   TensorFlow's words: worker, worker:1
//	Run          one start to its end
//
// The lifecycle does no I/O and reads no clock: events in, actions out. Everything
// else obeys it.
package cluster
