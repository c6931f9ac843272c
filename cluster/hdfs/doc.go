// Package hdfs reads and writes files of HDFS for results: writes are atomic, create missing
// parents, and survive a restart of the NameNode. It is a thin layer over
// github.com/colinmarc/hdfs.
//
// A name is a URI (hdfs://nameservice/path, hdfs://host:port/path), a URI without authority
// (hdfs:///path), or a path; the latter two refer to fs.defaultFS. A relative path is below
// /user/NAME.
//
// All methods of FS are safe for concurrent use and return when their context ends. Temporary
// errors (NameNode restarting or in safe mode, no DataNode yet) are retried for Config.Bridge.
// Other errors have one line and wrap fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, ErrQuota,
// ErrSafeMode or ErrUnreachable if one applies.
//
// Kerberos would be added in newSession, which creates the client.
package hdfs
