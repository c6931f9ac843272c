// Package sparktest runs a real standalone Spark cluster for tests: a master and its workers, from the jars
// of the project's pyspark.
//
// Tests that neither kill its daemons nor need other settings share one with clustertest.Share; each of
// them calls CheckApplications.
package sparktest
