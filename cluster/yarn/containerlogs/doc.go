// Package containerlogs reads what YARN's containers wrote: from their nodes while these have
// it, later from HDFS. It tells from a log's beginning whose container it is, and how an
// application ended.
package containerlogs
