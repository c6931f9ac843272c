package hadooptest

import (
	"fmt"
	"os"
	"path/filepath"
)

// userCache is the folder in which a NodeManager prepares its containers.
func (c *Cluster) userCache(i int) string {
	return filepath.Join(c.dir, fmt.Sprintf("node%d", i), "local", "usercache")
}

// BreakDisk makes a NodeManager without containers fail to prepare any, as with a broken disk, until
// MendDisk.
func (c *Cluster) BreakDisk(i int) {
	c.t.Helper()
	path := c.userCache(i)
	err := os.Rename(path, path+".aside")
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// MendDisk reverts BreakDisk.
func (c *Cluster) MendDisk(i int) {
	c.t.Helper()
	path := c.userCache(i)
	err := os.Remove(path)
	if err == nil {
		err = os.Rename(path+".aside", path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
