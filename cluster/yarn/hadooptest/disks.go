package hadooptest

import (
	"fmt"
	"os"
	"path/filepath"
)

// userCache is where a NodeManager keeps what its containers are made of.
func (c *Cluster) userCache(i int) string {
	return filepath.Join(c.dir, fmt.Sprintf("node%d", i), "local", "usercache")
}

// BreakDisk has a NodeManager that runs no container prepare none any more, until
// MendDisk: its disk fails where it is to write.
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

// MendDisk has it prepare containers again.
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
