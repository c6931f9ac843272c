// Package zmtp implements the two listening ZeroMQ sockets that a Jupyter kernel offers its clients, ROUTER and XPUB,
// over TCP and Unix sockets, with ZMTP 3.0 and 3.1 (https://rfc.zeromq.org/spec/23/ and
// https://rfc.zeromq.org/spec/37/) and the mechanisms NULL and, with a key pair, CURVE
// (https://rfc.zeromq.org/spec/26/).
//
// It is built for peers that misbehave before they are authenticated: a handshake has a
// deadline and never delays another peer; memory for a frame is allocated as bytes arrive, not
// by its claimed length; a peer that stops reading fills only its own bounded queue. Sending
// never blocks.
//
// A socket has one mechanism and refuses peers of another. A CURVE socket is the server and
// accepts any client that has its public key. A message is encrypted for each connection, when
// it leaves the queue.
//
// It does not dial and does not support PLAIN; use a general library if the peer is trusted.
package zmtp
