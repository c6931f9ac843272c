// Package sparktest gives tests a real standalone Spark cluster: a master and its
// workers, from the jars of the pyspark that the project's Python has.
package sparktest
