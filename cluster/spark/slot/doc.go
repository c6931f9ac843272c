// Package slot implements `tfcluster spark-slot`, which runs in a Spark task on an executor: it acquires a
// slot of the executor that has no agent of the cluster, starts an agent in it, and exits. Spark can run it
// without Python in between; Python's tasks do nothing but run it.
package slot
