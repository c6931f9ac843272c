package hadooptest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options select the daemons of Hadoop. The zero value starts none.
type Options struct {
	HDFS         bool // a NameNode and a DataNode; without it fs.defaultFS is file:///
	NodeManagers int  // with a ResourceManager, if there is one
	// GPUs is the number of GPUs (yarn.io/gpu) of each NodeManager. They are simulated by an nvidia-smi on
	// the containers' PATH.
	GPUs int
	// GPUPlugins is the number of NodeManagers, the first ones, that discover their GPUs with YARN's plugin.
	// The others have the number of GPUs in their configuration.
	GPUPlugins int
	// Labels are the node labels, one for each NodeManager, "" for none. The queue default may use all of
	// each label.
	Labels []string
	// Recovery makes the ResourceManager recover its applications after a restart.
	Recovery bool
	// Protection is hadoop.rpc.protection: authentication, integrity or privacy.
	Protection string
	// MasterExpiry and NodeExpiry are the times after which an ApplicationMaster or a NodeManager without
	// heartbeats expires: 20 s and 15 s by default.
	MasterExpiry, NodeExpiry time.Duration
	// Site has further properties for yarn-site.xml and capacity-scheduler.xml.
	Site map[string]string
}

// Cluster is a running Hadoop. Only the test's goroutine may call its methods.
type Cluster struct {
	Conf string // the clients' configuration folder, for HADOOP_CONF_DIR
	Host string // the loopback address of NameNode and ResourceManager
	// The daemons; nil if Options do not select them.
	NameNode, DataNode, ResourceManager *Daemon
	NodeManagers                        []*Daemon

	t        testing.TB
	options  Options
	jars     string
	dir      string // all files of this cluster are below it
	network  string // 127.64.3
	listener net.Listener
}

// startLimit is how long the daemons may take to become ready on a loaded machine.
const startLimit = 5 * time.Minute

// Start starts a Hadoop that runs until the test ends. It skips the test in short mode.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("short: starts Hadoop")
	}
	if o.MasterExpiry == 0 {
		o.MasterExpiry = 20 * time.Second
	}
	if o.NodeExpiry == 0 {
		o.NodeExpiry = 15 * time.Second
	}
	c := &Cluster{t: t, options: o, jars: Jars(t), dir: t.TempDir()}
	c.Conf = filepath.Join(c.dir, "conf")
	if err := c.reserve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	if err := c.write(); err != nil {
		t.Fatalf("write Hadoop's configuration: %v", err)
	}
	if err := c.startAlone(); err != nil {
		t.Fatalf("start Hadoop: %v", err)
	}
	return c
}

// startAlone starts the daemons while no other test on this machine starts a Hadoop, since simultaneous
// starts would all be slow.
func (c *Cluster) startAlone() error {
	lock, err := os.OpenFile(filepath.Join(c.jars, ".starting"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("wait for the start of another Hadoop: %w", err)
	}
	return c.start()
}

// reserve finds a network of loopback addresses that no other cluster uses. A listener holds it until this
// process ends.
func (c *Cluster) reserve() error {
	var last error
	for range 50 {
		c.network = fmt.Sprintf("127.%d.%d", 64+rand.IntN(64), rand.IntN(256))
		c.Host = c.network + ".1"
		if c.listener, last = net.Listen("tcp", c.Host+":8019"); last == nil {
			return nil
		}
	}
	return fmt.Errorf("reserve loopback addresses: %w", last)
}

// nodeHost returns the address of a NodeManager. Each has a different one, as if it were another machine.
func (c *Cluster) nodeHost(i int) string { return fmt.Sprintf("%s.%d", c.network, 11+i) }

func (c *Cluster) write() error {
	// NameNode and DataNode require these folders on the class path, even if they are empty.
	for _, d := range []string{"webroot/webapps/hdfs", "webroot/webapps/datanode", "log", "tmp"} {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o755); err != nil {
			return err
		}
	}
	// Without this file Java queries DNS for the name of each loopback address.
	hosts := "127.0.0.1 localhost\n" + c.Host + " " + c.Host + "\n"
	for i := range c.options.NodeManagers {
		hosts += c.nodeHost(i) + " " + c.nodeHost(i) + "\n"
		if err := c.writeConf(filepath.Join(c.dir, fmt.Sprintf("conf-node%d", i)), c.nodeSite(i)); err != nil {
			return err
		}
		if err := c.writeGPUs(i); err != nil {
			return err
		}
	}
	if name, err := os.Hostname(); err == nil {
		hosts += "127.0.0.1 " + name + "\n"
	}
	if err := os.WriteFile(filepath.Join(c.dir, "hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	return c.writeConf(c.Conf, nil)
}

// start starts the daemons in parallel and waits until all are ready.
func (c *Cluster) start() error {
	var g errgroup.Group
	if c.options.HDFS {
		if err := c.format(); err != nil {
			return err
		}
		c.NameNode = c.daemon("NameNode", "org.apache.hadoop.hdfs.server.namenode.NameNode", c.Conf, 192, c.nameNodeReady)
		c.DataNode = c.daemon("DataNode", "org.apache.hadoop.hdfs.server.datanode.DataNode", c.Conf, 160, c.dataNodeReady)
		g.Go(c.NameNode.start)
		g.Go(c.DataNode.start)
	}
	if c.options.NodeManagers > 0 {
		c.ResourceManager = c.daemon("ResourceManager", "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
			c.Conf, 256, c.managerReady)
		g.Go(c.ResourceManager.start)
	}
	for i := range c.options.NodeManagers {
		ready := func() error { return c.nodeReady(i) }
		d := c.daemon(fmt.Sprintf("NodeManager-%d", i), "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
			filepath.Join(c.dir, fmt.Sprintf("conf-node%d", i)), 192, ready)
		c.NodeManagers = append(c.NodeManagers, d)
		g.Go(d.start)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.label()
}

// format creates the NameNode's folder. It is the same for every cluster, so a copy is cached beside the
// jars.
func (c *Cluster) format() error {
	name, cached := filepath.Join(c.dir, "name"), filepath.Join(c.jars, "name")
	if err := os.CopyFS(name, os.DirFS(cached)); err == nil {
		return nil
	}
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	cmd := exec.Command("java",
		c.javaArgs(c.Conf, 128, "org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-nonInteractive", "-force")...)
	cmd.Dir = c.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format the NameNode: %w\n%s", err, out)
	}
	aside, err := os.MkdirTemp(c.jars, "name-*") // another cluster may do the same at this time
	if err != nil {
		return err
	}
	if err := os.CopyFS(aside, os.DirFS(name)); err != nil {
		return err
	}
	if os.Rename(aside, cached) != nil {
		return os.RemoveAll(aside)
	}
	return nil
}

// userName returns the user of simple authentication.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// stop stops the daemons and fails the test if a container's process is left.
func (c *Cluster) stop() {
	daemons := append([]*Daemon{c.NameNode, c.DataNode, c.ResourceManager}, c.NodeManagers...)
	failed := c.t.Failed()
	c.checkLeftovers() // before the NodeManagers end, which kill their containers
	var g errgroup.Group
	for _, d := range daemons {
		if d != nil {
			g.Go(func() error { d.saveArchive(); return nil })
		}
	}
	_ = g.Wait() // none fails
	for _, d := range daemons {
		if d != nil {
			d.Kill()
			if failed {
				c.t.Logf("the end of the %s's log:\n%s", d.Name, d.tail(10))
			}
		}
	}
	c.killLeftovers()
	c.listener.Close()
}
