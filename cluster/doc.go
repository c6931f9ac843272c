// Package cluster holds the nouns of a TensorFlow cluster, and what a backend implements:
//
//	Cluster      reserve to shutdown
//	Allocation   what a Backend was granted by its engine
//	Executor     a place in it; the agent is our process there
//	Role, Task   TensorFlow's words: worker, worker:1
//	Run          one start to its end
//
// What acts on them is in the packages below: lifecycle decides what happens next,
// coordinator does it, logstore keeps the tasks' lines, results a run's record, state what
// outlives a driver, auth the certificates; client finds and starts drivers.
package cluster
