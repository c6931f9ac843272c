// Package zmtp implements the two listening ZeroMQ sockets that a Jupyter kernel offers its clients, ROUTER and XPUB,
// over TCP and Unix sockets with the NULL mechanism of ZMTP 3.0 and 3.1 (https://rfc.zeromq.org/spec/23/ and
// https://rfc.zeromq.org/spec/37/).
//
// It is built for peers that misbehave before they are authenticated: a handshake has a
// deadline and never delays another peer; memory for a frame is allocated as bytes arrive, not
// by its claimed length; a peer that stops reading fills only its own bounded queue. Sending
// never blocks.
//
// It does not dial, and supports neither CURVE nor PLAIN; use a general library if the peer is
// trusted.
package zmtp
