// Package group is the agent's side of collective calls. It has the memory that a task shares with the tasks of its
// host, connects to the members of the task's group, and makes the calls of the task's program (package
// rdma/collective).
//
// The program and the members of the same host connect to one unix socket. A connection begins with a line of JSON:
//
//	→ open    key (of the task)            the program's connection
//	→ peer    key (of the group), rank     another member: the protocol of package rdma/transport follows
//
// The program's connection continues with lines of JSON, one call at a time:
//
//	→ join    seconds: waits until all have joined
//	← memory  rank, size, slots; with the descriptor of its memory: for each rank of the host
//	← group   rank, names, slot: the slot in which the vector of the first call is expected
//	→ call    kind, type, reduce, root, size, seconds: the vector is in the own memory, in its two slots by turns
//	← done    parts: [rank, slot, offset, size]; the result is their sequence
//	← failed  reason: the group is over. If again is true, only this call could not be made
package group
