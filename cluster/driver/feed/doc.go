// Package feed decides how the records of a source reach the tasks of a run: the state machine of the driver. It is
// pure: the messages of holders in, orders for holders out (clusterpb's, as they are on the wire), no clock, no I/O.
//
// A source (a Spark job, the notebook's arrays) is read once per epoch, in partitions. A producer reads one partition
// and writes batches of records into a holder: the shared memory of a task, which the task's agent owns. The task's
// program reads them there.
//
// Exactly once: a producer asks for the lease of (epoch, partition) before it delivers anything. One attempt has it at
// a time. The next attempt begins after the records that were delivered, and first checks that it has the same records
// in the same order: an engine may compute a partition again in another order. A holder reports the end of a producer
// after all that the producer delivered, so the number of records is exact when the lease is free again.
//
// Even reading: programs of synchronous training read batches that all workers must have in equal number. No holder
// hands out more records of an epoch than the poorest holder has received. Records move from holders that are ahead to
// holders that are behind, and at the end of an epoch so that every holder has the same number. Less than one record
// per holder remains.
//
//	feed.go     the state, the messages that change it
//	lease.go    the leases of partitions
//	balance.go  which records move, and when an epoch is over
package feed
