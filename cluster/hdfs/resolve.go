package hdfs

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
)

// location is a resolved name.
type location struct {
	nameNodes []string // host:port
	path      string   // absolute
	uri       string   // for messages
}

// key identifies an HDFS.
func (l location) key() string { return strings.Join(l.nameNodes, ",") }

// ErrNotHDFS is the error for a URI of another storage.
var ErrNotHDFS = errors.New("not on HDFS, the only storage besides disks and shared folders that tfcluster can use")

// defaultPort is the port of a NameNode whose URI has none.
const defaultPort = "8020"

// Path returns the absolute path of a name within its HDFS.
func (f *FS) Path(name string) (string, error) {
	at, err := f.resolve(name)
	return at.path, err
}

// URI returns the full URI of a name: hdfs://authority/path.
func (f *FS) URI(name string) (string, error) {
	at, err := f.resolve(name)
	return at.uri, err
}

// resolve returns the HDFS and the path that a name refers to.
func (f *FS) resolve(name string) (location, error) {
	authority, p := "", name
	if scheme, rest, ok := strings.Cut(name, "://"); ok {
		if scheme != "hdfs" {
			return location{}, fmt.Errorf("%s is %w", name, ErrNotHDFS)
		}
		authority, p, _ = strings.Cut(rest, "/")
		p = "/" + p
	}
	if p == "" {
		return location{}, fmt.Errorf("%q is not the name of a file on HDFS: want hdfs://HOST/PATH or a path", name)
	}
	if authority == "" {
		var err error
		if authority, err = f.defaultAuthority(); err != nil {
			return location{}, fmt.Errorf("%s names no NameNode, and %w", name, err)
		}
	}
	if !path.IsAbs(p) {
		p = path.Join("/user", f.config.User, p)
	}
	at := location{path: path.Clean(p)}
	at.uri = "hdfs://" + authority + at.path
	at.nameNodes = f.nameNodes(authority)
	if len(at.nameNodes) == 0 {
		return location{}, fmt.Errorf("%s: the Hadoop configuration%s has no address of a NameNode of %s: "+
			"set dfs.namenode.rpc-address.%[3]s.NAMENODE in hdfs-site.xml", name, f.configuredIn(), authority)
	}
	return at, nil
}

// configuredIn returns " in FOLDER" with the folder of the configuration; "" if it was not read from one.
func (f *FS) configuredIn() string {
	if dir := f.config.Conf.Dir(); dir != "" {
		return " in " + dir
	}
	return ""
}

// defaultAuthority returns the host and port of fs.defaultFS.
func (f *FS) defaultAuthority() (string, error) {
	fs := f.config.Conf.Or("fs.defaultFS", f.config.Conf.Get("fs.default.name"))
	u, err := url.Parse(fs)
	if err != nil || u.Scheme != "hdfs" || u.Host == "" {
		return "", fmt.Errorf("fs.defaultFS is %q in the Hadoop configuration%s; it must be hdfs://HOST:PORT, "+
			"the only file system that tfcluster reads and writes on a cluster: set it in core-site.xml", fs, f.configuredIn())
	}
	return u.Host, nil
}

// nameNodes returns the addresses behind an authority, which may be a nameservice.
func (f *FS) nameNodes(authority string) []string {
	conf := f.config.Conf
	if ids := conf.Get("dfs.ha.namenodes." + authority); ids != "" {
		var found []string
		for id := range strings.SplitSeq(ids, ",") {
			if a := conf.Get("dfs.namenode.rpc-address." + authority + "." + strings.TrimSpace(id)); a != "" {
				found = append(found, a)
			}
		}
		return slices.Compact(found)
	}
	if a := conf.Get("dfs.namenode.rpc-address." + authority); a != "" {
		return []string{a}
	}
	if _, _, err := net.SplitHostPort(authority); err != nil {
		authority = net.JoinHostPort(strings.Trim(authority, "[]"), defaultPort)
	}
	return []string{authority}
}
