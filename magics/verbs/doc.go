// Package verbs is what %tfcluster does: a verb a file, written over the Control service of a
// cluster's driver, and what several of them need (the request of a reservation, the program of a
// start, configuration).
package verbs
