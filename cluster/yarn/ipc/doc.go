// Package ipc implements a client of Hadoop's IPC version 9 over TCP, with simple authentication by the
// user's name or with a token and SASL DIGEST-MD5, whose quality of protection may be auth, auth-int or
// auth-conf.
//
// Conn is one connection, which ends at its first failure. Client connects when it is called, and again after
// a failure; with several addresses it finds the active server. Both are safe for concurrent use.
//
// Kerberos would be a second method in Conn.authenticate.
package ipc
