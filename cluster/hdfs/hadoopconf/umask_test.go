package hadoopconf_test

import (
	"io/fs"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

func TestUmask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fs.FileMode{
		"": 0o077, "022": 0o022, " 027 ": 0o027, "0077": 0o077, "1022": 0o022, "0": 0, "u=rwx,g=rx,o=": 0o027,
		"u=rwx,g=r-x,o=r-x": 0o022, "a=rwx": 0, "ug=rw,o=": 0o117,
		// As in Hadoop 3.3.6: + and - start from no permissions, the last clause of a class
		// counts, and a means u, g and o only if none of them is named.
		"u=rwx,g+rx,o-rwx": 0o027, "u+rwx": 0o077, "=rx": 0o222, "u=rwx,g=rx,g=r": 0o037, "u=rwx,g+r,g+w": 0o057,
		"ua=rx": 0o277, "u+=rwx": 0o077, "u==rw": 0o177, "u=rwx, g=rx , o=": 0o027, "u=rwx,,g=rx": 0o027, "u=rwx,": 0o077,
		"u=rwx,g=-wx": 0o077, "u=": 0o777, "=": 0o777,
		// Hadoop removes the owner's permissions here, which leaves files that nobody can use.
		"g-w,o-rwx": 0o077, "+rx": 0o022, "-w": 0o277, "g=rx,o=": 0o027, "u-w,g=r": 0o237, "g+r": 0o037,
	} {
		if got, err := hadoopconf.New(map[string]string{"fs.permissions.umask-mode": text}).Umask(); err != nil ||
			got != want {
			t.Errorf("%q: %04o, %v; want %04o", text, got, err, want)
		}
	}
	for _, text := range []string{
		"8", "-1", "077777", "rwx", "u=rwx;o=", ",", "u=rwxt", "u=rwx g=rx", "g + w", "g+r-x", "z+r",
	} {
		if got, err := hadoopconf.New(map[string]string{"fs.permissions.umask-mode": text}).Umask(); err == nil {
			t.Errorf("%q is %04o", text, got)
		}
	}
}
