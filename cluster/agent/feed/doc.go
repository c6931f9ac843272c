// Package feed is the executor's side of a feed: a holder. It owns the shared memory into which producers write
// batches and from which the task's program reads them, and a unix socket for both. It attends the driver.
//
// # The socket
//
// The socket carries lines of JSON in both directions. Each line is an object with "op"; see message. Records travel
// in the memory only: a slot of it holds one batch as an Arrow IPC stream. This package does not read the batches.
// The reader of a batch receives the range of its records.
//
// A producer on another host sends the same lines; the driver carries its connection (Carry). It has no descriptor:
// the bytes of a batch follow the line "put", and the producer fetches the bytes of results.
//
// A producer, one connection per partition:
//
//	→ produce  feed, key, epoch, partition, attempt, digest
//	← lease    skip, complete, digest, size, slots; with the memory's descriptor. If complete, nothing is to be
//	           delivered. digest is the digest of the records to skip: the producer ends if its own differs
//	→ slot     asks for a slot
//	← slot     slot, batch: the program takes this number of records at once; 0 if it is not known. If a slot has a
//	           multiple of it, the program gets the records without a copy
//	→ put      slot, bytes, rows, piece, digest: the slot has a batch now. piece is the producer's number for it;
//	           digest is the digest of all records of the partition so far
//	→ end      everything has been put: the producer waits for results (inference)
//	← results  piece, begin, end, slot, bytes: the slot holds the results of records [begin, end) of a batch (inference)
//	→ fetch    slot: asks for results; only where the driver carries the connection (inference)
//	← bytes    slot, bytes: the results follow this line
//	→ taken    slot: the results have been read (inference)
//	→ done     the partition has been delivered; in inference all results have been read, too
//	← done     rows of the partition that were delivered, by all attempts
//	← stop     reason: the holder takes no more records; "" if all programs have what they want
//
// The task's program, one connection:
//
//	→ consume  key
//	← segment  size, slots; with the memory's descriptor
//	← feed     feed, plan: a feed begins
//	→ read     even, batch: how the program reads it, and how many records at once
//	→ next     asks for one more batch
//	← batch    slot, bytes, epoch, begin, end, piece: records [begin, end) of the batch in the slot
//	← flush    an answer to next: producers wait for results of records that the program has, and no others come
//	           before (inference)
//	→ free     slot, rows: the program does not refer to this number of the slot's records any more
//	→ used     epoch, rows: this number of the epoch's records was handed to the program
//	← epoch_over  epoch, rows, repeat, most, least: after the last batch of an epoch
//	← over     reason: after the last epoch, or at once if the feed failed
//	→ leave    epoch, rows: the program reads no more of this feed. Of the records of the epoch that it was handed,
//	           it has not read this number
//
// The task's program, a second connection, in inference:
//
//	→ answer   key
//	← segment  size, slots; with the memory's descriptor
//	→ slot     asks for a slot
//	← slot     slot
//	→ put      feed, piece, begin, end, slot, bytes: the slot has the results of records [begin, end) of the batch
//	           with the number piece, in the order of the records
package feed
