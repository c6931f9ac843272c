// Package cluster has the types of a cluster and the interfaces that a backend implements.
//
//	Cluster      from reserve to shutdown
//	Allocation   the executors that an engine has granted to a Backend
//	Executor     a place for one task; the agent is the process of tfcluster on it
//	Role, Task   as in TensorFlow: worker, worker:1
//	Run          one start of a program, until its end
//
// The packages below use them: lifecycle decides the next actions, coordinator executes them,
// logstore stores the lines of tasks, results the records of runs, state what survives a driver,
// auth the certificates. client finds and starts drivers.
package cluster
