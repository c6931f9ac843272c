// Package sparktest gives tests a real standalone Spark cluster: a master and its
// workers, from the jars of the pyspark that the project's Python has.
//
// Tests that neither kill its daemons nor need settings of their own share one by
// clustertest.Share; each of them calls Own for its applications.
package sparktest
