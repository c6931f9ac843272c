package hadoopconf_test

import (
	"io/fs"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

func TestUmask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fs.FileMode{
		"": 0o077, "022": 0o022, " 027 ": 0o027, "0077": 0o077, "1022": 0o022, "0": 0, "u=rwx,g=rx,o=": 0o027, "u=rwx,g=r-x,o=r-x": 0o022, "a=rwx": 0,
		"ug=rw,o=": 0o117,
	} {
		if got, err := hadoopconf.New(map[string]string{"fs.permissions.umask-mode": text}).Umask(); err != nil || got != want {
			t.Errorf("%q: %04o, %v; want %04o", text, got, err, want)
		}
	}
	for _, text := range []string{"8", "-1", "077777", "u+rwx", "rwx", "u=rwx;o="} {
		if got, err := hadoopconf.New(map[string]string{"fs.permissions.umask-mode": text}).Umask(); err == nil {
			t.Errorf("%q is %04o", text, got)
		}
	}
}
