// Package spark is the backend for Spark: agents are started by Spark executors. It talks to a
// host, a Python process with a SparkSession: the notebook's own, or one that the driver starts
// for the cluster (spark-submit's client mode).
//
// A stage starts one agent in each slot and ends; its tasks run package slot. The agents run on
// in sessions of their own and end with the executor's JVM, which they watch. Thus one core per
// executor is enough, and the session is free for other jobs. A resource profile assigns GPUs to
// the stage. In a session of the notebook, whose executors may have GPUs of several agents, the
// stage then runs until the agents end, because Spark would assign the GPUs to others.
package spark
