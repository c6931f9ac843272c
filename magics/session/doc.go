// Package session holds the state of a notebook, a gate or a command between its lines: its
// clusters, the current one, and access to the history of ended ones.
package session
