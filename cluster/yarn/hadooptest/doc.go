// Package hadooptest runs a real Hadoop for tests: a NameNode with a DataNode, a
// ResourceManager with NodeManagers, each a process of its own on loopback addresses
// of the cluster's own, from jars that make hadoop copied. A test that finds no jars
// or no java is skipped with a word.
//
//	c := hadooptest.Start(t, hadooptest.Options{HDFS: true, NodeManagers: 2})
//	request.Engine["conf-dir"] = c.Conf // a variable of the process would forbid parallel tests
//	c.NameNode.Kill()
//	c.NameNode.Start()
//
// The first daemon of each kind leaves an archive of its loaded classes (Java's AppCDS)
// beside the jars; those that follow start in half the time.
//
// Daemons end with the test, also when it is killed. A test that leaves a container's
// process behind fails.
package hadooptest
