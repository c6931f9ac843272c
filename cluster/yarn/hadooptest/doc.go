// Package hadooptest runs a real Hadoop for tests: a NameNode with a DataNode, and a ResourceManager with
// NodeManagers, each in a separate process on the cluster's own loopback addresses, from the jars that
// make hadoop installs. A test is skipped with a message if there are no jars or there is no java.
//
//	c := hadooptest.Start(t, hadooptest.Options{HDFS: true, NodeManagers: 2})
//	request.Engine["conf-dir"] = c.Conf // setting HADOOP_CONF_DIR would prevent parallel tests
//	c.NameNode.Kill()
//	c.NameNode.Start()
//
// The first daemon of each class writes an archive of its loaded classes (Java's AppCDS) beside the jars,
// with which later ones start in half the time.
//
// Daemons end with the test, even if it is killed. A test fails if a container's process is left.
package hadooptest
