// Package zmtp implements the two listening ZeroMQ sockets that a Jupyter kernel offers its clients, ROUTER and XPUB,
// over TCP and Unix sockets with the NULL mechanism of ZMTP 3.0 and 3.1 (https://rfc.zeromq.org/spec/23/ and
// https://rfc.zeromq.org/spec/37/).
//
// It is built for peers that misbehave before anything authenticated them: a handshake has a deadline and never
// delays another peer, a forged length allocates nothing that was not received, and a peer that stops reading costs
// a bounded queue of its own and nobody else's time. Sending never blocks.
//
// It does not dial, and has neither CURVE nor PLAIN; use a general library where the peer is trusted.
package zmtp
