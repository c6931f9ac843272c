// Package intake is the executor's side of a feed: a holder. It owns the shared memory into which producers write
// batches and from which the task's program reads them, and a unix socket for both, and it attends the driver.
//
// # The socket
//
// Lines of JSON in both directions, each an object with "op"; see message. Records travel in the memory alone: a
// slot of it holds one batch as an Arrow IPC stream. This package does not read the batches; the one who reads a
// batch gets the range of its records.
//
// A producer on another host speaks the same lines; the driver carries its connection (Carry). It has no descriptor:
// the bytes of a batch follow the line "put", and results are fetched.
//
// A producer, one connection per partition:
//
//	→ produce  feed, key, epoch, partition, attempt, digest
//	← lease    skip, complete, digest, size, slots; with the memory's descriptor. If complete, nothing is to be
//	           delivered. digest is that of the records to skip: the producer ends where it has others
//	→ slot     asks for a slot
//	← slot     slot, batch: the program takes so many records at once, 0 if that is not known. If a slot has a
//	           multiple of them, the program gets them without a copy
//	→ put      slot, bytes, rows, piece, digest: the slot holds a batch now; piece is the producer's number for it, and
//	           digest that of all records of the partition so far
//	→ end      everything has been put: the producer waits for results (inference)
//	← results  piece, begin, end, slot, bytes: the slot holds the results of records [begin, end) of a batch (inference)
//	→ fetch    slot: asks for results; only where the driver carries the connection (inference)
//	← bytes    slot, bytes: the results follow the line
//	→ taken    slot: the results have been read (inference)
//	→ done     the partition has been delivered; in inference all results have been read, too
//	← done     rows of the partition that were delivered, by all attempts
//	← stop     reason: nothing is taken any more; "" if all programs have what they want
//
// The task's program, one connection:
//
//	→ consume  key
//	← segment  size, slots; with the memory's descriptor
//	← feed     feed, plan: a feed begins
//	→ read     even, batch: how the program reads it, and how many records at once
//	→ next     asks for one batch more
//	← batch    slot, bytes, epoch, begin, end, piece: records [begin, end) of the batch in the slot
//	← flush    answers next like a batch: producers wait for results of records that the program has, and no others
//	           come before (inference)
//	→ free     slot, rows: nothing refers to so many records of the slot any more
//	→ used     epoch, rows: so many records of the epoch were handed to the program
//	← epoch_over  epoch, rows, repeat, most: behind the last batch of an epoch
//	← over     reason: behind the last epoch, or at once if the feed failed
//	→ leave    epoch, rows: the program reads no more of this feed; of the records of the epoch that it was handed it has
//	           not read so many
//
// The task's program, a second connection, in inference:
//
//	→ answer   key
//	← segment  size, slots; with the memory's descriptor
//	→ slot     asks for a slot
//	← slot     slot
//	→ put      feed, piece, begin, end, slot, bytes: the slot holds the results of records [begin, end) of the batch that
//	           came under the number piece, in their order
package intake
