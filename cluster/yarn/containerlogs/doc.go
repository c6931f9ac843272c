// Package containerlogs reads the logs of YARN containers, from the nodes while they have them and later
// from HDFS. The first line of a container's log names its executor. It also describes how applications
// ended.
package containerlogs
