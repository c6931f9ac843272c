// Package gang decides when a partially filled reservation releases its containers, so that another
// reservation can be filled, and when it asks for them again.
//
// YARN allocates containers one by one, so two reservations that each hold half of a cluster wait for
// each other until both time out. The rule: a reservation that has held some of its containers for a
// time T without progress, while another partially filled reservation waits too, releases them and asks
// again after T·2ⁿ, where n is the number of releases before. T is a fraction of the reservation's
// timeout, and both times are random within a factor of two, so that competitors do not act in step.
//
// Nothing is released while no other reservation waits: in a queue full of jobs that end, a reservation
// that keeps its containers gets the rest as those jobs end, and one that releases them loses them to
// the next small job. YARN does not report which applications wait for more containers. Applications of
// this project report the part of their executors that they hold as their progress, so only they count
// as competitors.
//
// A reservation that was complete once releases nothing.
package gang
