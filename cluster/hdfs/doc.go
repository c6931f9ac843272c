// Package hdfs reads and writes files of HDFS in the way that results want it: whole
// or not at all, with their parents, and across a NameNode's restart. It is a thin
// layer over github.com/colinmarc/hdfs.
//
// A name is a URI (hdfs://nameservice/path, hdfs://host:port/path), one without an
// authority (hdfs:///path), or a path alone; the latter two are on fs.defaultFS, and a
// relative path is below /user/NAME.
//
// Methods may be called from any goroutine and end when their context does. What
// HDFS refuses for a while (NameNode restarting, still in safe mode, no DataNode yet)
// is tried again for Config.Bridge; every other refusal is an error of one line, which
// errors.Is knows as fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, ErrQuota,
// ErrSafeMode or ErrUnreachable.
//
// Kerberos would enter in newSession, which makes colinmarc's client.
package hdfs
