// Package clustertest is a test suite for all backends, with real agents, a real driver, real Python
// processes, and the faults that they must survive.
package clustertest
