// Package verbs implements %tfcluster: one verb per file, using the Control service of a
// cluster's driver, and their common parts (the request of a reservation, the program of a
// start, configuration).
package verbs
