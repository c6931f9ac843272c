// Package collective combines vectors of several processes, its ranks: all-reduce, broadcast, all-gather, barrier.
//
// Each rank has memory with four slots. Its program writes the vector of call n into slot n mod 2 and reads the result
// where Run says it is, in the memory of other ranks, too. Nothing else is copied on one host:
//
//	program   writes its vector into slot n mod 2
//	rank r    → ready(n) to every rank of its host, with a description of the call
//	rank r    waits for ready(n) of all of them, combines part r of all vectors into its own slot
//	rank r    → reduced(n) to every rank of its host
//	program   reads part r from rank r, once all of them are reduced
//
// A slot can be written again two calls later: by then every rank has sent ready(n+1), which it does when its program
// has read the result of call n.
//
// Between hosts, the first rank of each host, the leader, collects its host's parts in its own slot and takes part in
// a ring of the leaders: first each part is summed up along the ring, by way of the third slot, then each sum is passed
// along it (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009). The result is the leader's slot. A
// leader writes into the slots of the next one when that one has said open(n).
//
// Elements are combined once for each part, in the order of ranks and hosts, so all ranks have the same bits.
package collective
