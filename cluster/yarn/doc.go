// Package yarn reserves executors on Hadoop YARN: one container per executor, each with its own memory,
// vcores, GPUs and node label. They belong to one unmanaged application whose ApplicationMaster is this
// process; with --managed, YARN runs the ApplicationMaster in a container. Package protocol describes
// what happens when the ApplicationMaster dies.
//
// A container's launch context has the program as a resource on HDFS, which is named by its digest and
// which NodeManagers cache, and the agent's configuration among its credentials. The configuration holds
// a key: YARN writes it to a file that only the container's user can read, and it is on no command line.
//
// An allocation has one goroutine that calls the ResourceManager, and one for each agent that is being
// started. Release waits for all of them.
package yarn
