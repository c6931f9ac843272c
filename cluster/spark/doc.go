// Package spark is the backend for Spark: agents are started by Spark executors. It talks to a
// host, a Python process with a SparkSession: the notebook's own, or one that the driver starts
// for the cluster (spark-submit's client mode).
//
// A stage starts one agent in each slot and ends; its tasks run package slot. The agents run on
// in sessions of their own and end with the executor's JVM, which they watch. Thus one core per
// executor is enough, and the session is free for other jobs. With GPUs the stage runs until
// the agents end, because Spark would assign the GPUs to other jobs.
package spark
