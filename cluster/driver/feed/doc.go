// Package feed decides how the records of a source reach the tasks of a run: the state machine of the driver.
// It is pure: events in, actions out, no clock, no input or output.
//
// A source (a Spark job, the notebook's arrays) is read once per epoch, in partitions. A producer reads one
// partition and writes batches of records into a holder: the shared memory of a task, owned by the task's
// agent. The program of the task reads them there.
//
// Exactly once: a producer asks for the lease of (epoch, partition) before it delivers anything. One attempt
// has it at a time; the next one begins behind the records that were delivered, after it has found that it has the
// same ones in the same order: an engine may compute a partition again in another order. A holder reports the end of a
// producer behind all that the producer delivered, so the number is exact when the lease is free again.
//
// Even reading: where programs read in batches that all workers must have in equal number (synchronous
// training), no holder hands out more records of an epoch than the poorest holder has received. Records move
// from holders that are ahead to those that are behind, and at the end of an epoch so that every holder has the
// same number; less than one record per holder remains.
package feed
