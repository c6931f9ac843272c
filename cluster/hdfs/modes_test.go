package hdfs_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// testModes: only the owner can access new files and folders, unless Hadoop's umask allows
// more.
func testModes(t *testing.T, c *hadooptest.Cluster) {
	conf, err := hadoopconf.Load(c.Conf)
	if err != nil {
		t.Fatal(err)
	}
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	for umask, want := range map[string]struct{ folder, file fs.FileMode }{
		"": {0o700, 0o600}, "022": {0o755, 0o644}, "u=rwx,g=rx,o=": {0o750, 0o640}, "077": {0o700, 0o600},
	} {
		f, err := hdfs.New(hdfs.Config{
			Conf: conf.With("fs.permissions.umask-mode", umask), User: user, Bridge: time.Minute, Stall: 5 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		top := "/modes-" + strings.NewReplacer("=", "", ",", "").Replace(umask)
		for _, err := range []error{
			f.Write(deadline(t), top+"/a/b/file", strings.NewReader("x")),
			f.Grow(deadline(t), top+"/a/c/log", strings.NewReader("x"), 1), f.MakeDir(deadline(t), top+"/d/e"),
			f.Write(deadline(t), top+"/a/b/file", strings.NewReader("again")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, mode := range map[string]fs.FileMode{
			"": 0o755, "/a": want.folder, "/a/b": want.folder, "/a/b/file": want.file, "/a/c": want.folder,
			"/a/c/log": want.file, "/d": want.folder, "/d/e": want.folder,
		} {
			if info, err := f.Stat(deadline(t), top+name); err != nil || info.Mode().Perm() != mode {
				t.Errorf("with the umask %q %s is %v: %v; want %04o", umask, top+name, info.Mode(), err, mode)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := hdfs.New(hdfs.Config{Conf: conf.With("fs.permissions.umask-mode", "rwx"), User: user}); err == nil ||
		!strings.Contains(err.Error(), "umask-mode") {
		t.Errorf("an invalid umask: %v", err)
	}
}
