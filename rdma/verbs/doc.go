// Package verbs calls libibverbs, the library of Linux for RDMA (rdma-core; InfiniBand Architecture Specification,
// volume 1, chapter 11). It is opened at run time, so a program that has this package runs where the library is not
// installed. There is no C code: package purego calls the library's functions.
//
// Post, Poll and Arm are inline functions in verbs.h; they are called by way of the pointers in struct ibv_context.
// The structures that pass between Go and the library are in layout.go, for 64-bit Linux on amd64 and arm64, and live
// in mapped pages: a device reads some of them after a call has returned, and Go's memory may move.
//
// The package has what reliable connections (RC) need: memory regions, queue pairs, RDMA writes with and without an
// immediate, and receives without memory. Package transport uses no iWARP device, because iWARP has no
// immediates (RFC 5040).
package verbs
