// Package ipc calls Hadoop's servers: IPC version 9 over TCP, with the user's name
// alone (simple authentication) or with a token over SASL DIGEST-MD5, whose quality of
// protection may be auth, auth-int or auth-conf.
//
// Conn is one connection, which ends at its first failure. Client connects when it is
// called and again after a failure; it knows several addresses, of which the active
// one answers. Both may be used from any goroutine.
//
// Kerberos would enter in Conn.authenticate, beside the token.
package ipc
