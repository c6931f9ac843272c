// Package slot is what runs in a task of Spark's on an executor: it takes a slot there
// in which no agent of the cluster lives, starts an agent in it, and ends. The agent's
// program does it itself (`tfcluster spark-slot`), so that Spark can run it without
// Python in between, and Python's tasks do nothing else than run it.
package slot
