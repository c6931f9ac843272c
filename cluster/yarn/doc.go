// Package yarn gets executors from Hadoop YARN: a container each, with its own memory,
// vcores, GPUs and node label, in one unmanaged application whose ApplicationMaster is
// this process. package protocol says what happens when it dies.
//
// An agent's container gets the program as a resource on HDFS, named by its content and
// kept by the nodes, and its configuration, which holds a key, among the credentials of
// its launch context: a file of that user's alone, never a word of a command.
//
// An allocation has one goroutine that calls the ResourceManager, and one for each
// agent that is being started; Release waits for all.
package yarn
