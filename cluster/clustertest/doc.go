// Package clustertest is the suite that every backend passes: real agents, a real
// driver, real Python processes, and the faults that clusters die of.
package clustertest
