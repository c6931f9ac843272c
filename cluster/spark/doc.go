// Package spark is the backend of a Spark cluster: executors of Spark's start the
// agents. It speaks with a host, a Python process that holds a SparkSession: the
// notebook's own, or one that the driver starts for the cluster (spark-submit's
// client mode).
//
// A stage starts one agent in each slot and ends; package slot is what its tasks run.
// The agents stay, in sessions of their own, and end with the executor's JVM, which
// they watch. So an executor of one core is enough, and the session is free for other
// jobs. Only where GPUs are asked for the stage stays, since Spark would give them
// away.
package spark
