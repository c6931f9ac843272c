// Package session is what a notebook, a gate or a command keeps between its lines: the clusters it
// holds, the last one used, and what is left of those that are over.
package session
