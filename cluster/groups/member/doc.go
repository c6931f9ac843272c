// Package member is the agent's side of collective calls: it holds the memory that a task shares with the tasks of its
// host, connects to the members of its group, and makes the calls of its program (package rdma/collective).
//
// The program and the members of the same host connect to one unix socket. A connection begins with a line of JSON:
//
//	→ open    key (of the task)            the program's connection
//	→ peer    key (of the group), rank     another member: what follows is package rdma/transport's
//
// The program's connection goes on with lines of JSON, one call at a time:
//
//	→ join    seconds: waits until all have joined
//	← memory  rank, size, slots; with the descriptor of its memory: for each rank of the host
//	← group   rank, names, slot: where the vector of the first call is expected
//	→ call    kind, type, reduce, root, size, seconds: the vector is in the own memory, in the two slots by turns
//	← done    parts: [rank, slot, offset, size], which make the result one behind the other
//	← failed  reason: the group is over, unless again is true: then the call could not be made
package member
