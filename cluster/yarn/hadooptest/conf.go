package hadooptest

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/internal/atomicfile"
)

// managerPackage has the classes of the ResourceManager.
const managerPackage = "org.apache.hadoop.yarn.server.resourcemanager."

// Ports are fixed: each cluster has its own addresses.
const (
	nameNodePort     = 8020
	nameNodeHTTPPort = 9870
	managerPort      = 8032
	schedulerPort    = 8030
	trackerPort      = 8031
	adminPort        = 8033
	managerHTTPPort  = 8088
	nodePort         = 8041
	localizerPort    = 8040
	nodeHTTPPort     = 8042
)

// properties are the contents of one XML file.
type properties map[string]string

// write replaces the file at once: a NodeManager reads its files again each time that it starts a container.
func (p properties) write(path string) error {
	var b bytes.Buffer
	b.WriteString("<configuration>\n")
	for _, k := range slices.Sorted(maps.Keys(p)) {
		b.WriteString("<property><name>")
		if err := xml.EscapeText(&b, []byte(k)); err != nil {
			return err
		}
		b.WriteString("</name><value>")
		if err := xml.EscapeText(&b, []byte(p[k])); err != nil {
			return err
		}
		b.WriteString("</value></property>\n")
	}
	b.WriteString("</configuration>\n")
	return atomicfile.Write(path, b.Bytes())
}

// milliseconds formats a duration for Hadoop.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// writeConf writes the configuration folder of one daemon or of the clients.
func (c *Cluster) writeConf(dir string, node properties) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[string]properties{
		"core-site.xml":          c.coreSite(),
		"hdfs-site.xml":          c.hdfsSite(),
		"yarn-site.xml":          c.yarnSite(),
		"capacity-scheduler.xml": c.capacityScheduler(),
	}
	maps.Copy(files["yarn-site.xml"], node)
	for name, p := range files {
		if err := p.write(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return os.WriteFile(filepath.Join(dir, "log4j.properties"), []byte(log4j), 0o644)
}

const log4j = `log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
`

func (c *Cluster) coreSite() properties {
	p := properties{
		"fs.defaultFS":                      "file:///",
		"hadoop.tmp.dir":                    filepath.Join(c.dir, "tmp"),
		"hadoop.security.authentication":    "simple",
		"hadoop.http.staticuser.user":       userName(),
		"ipc.client.connect.max.retries":    "50",
		"ipc.client.connect.retry.interval": "100",
	}
	if c.options.HDFS {
		p["fs.defaultFS"] = "hdfs://${hadooptest.namenode}"
		p["hadooptest.namenode"] = fmt.Sprintf("%s:%d", c.Host, nameNodePort)
	}
	if c.options.Protection != "" {
		p["hadoop.rpc.protection"] = c.options.Protection
	}
	return p
}

func (c *Cluster) hdfsSite() properties {
	return properties{
		"dfs.replication":                       "1",
		"dfs.namenode.name.dir":                 "file://" + filepath.Join(c.dir, "name"),
		"dfs.datanode.data.dir":                 "file://" + filepath.Join(c.dir, "data"),
		"dfs.namenode.rpc-address":              fmt.Sprintf("%s:%d", c.Host, nameNodePort),
		"dfs.namenode.http-address":             fmt.Sprintf("%s:%d", c.Host, nameNodeHTTPPort),
		"dfs.namenode.safemode.extension":       "0",
		"dfs.namenode.handler.count":            "4",
		"dfs.namenode.fs-limits.min-block-size": "0",
		// The NameNode uses the address from which a DataNode called, which is
		// 127.0.0.1 for every loopback address; so the DataNode listens there.
		"dfs.datanode.address":                                      "127.0.0.1:0",
		"dfs.datanode.http.address":                                 "127.0.0.1:0",
		"dfs.datanode.ipc.address":                                  "127.0.0.1:0",
		"dfs.namenode.datanode.registration.ip-hostname-check":      "false",
		"dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
		"dfs.heartbeat.interval":                                    "1",
		"dfs.namenode.redundancy.interval.seconds":                  "1",
		"dfs.permissions.superusergroup":                            "hadooptest",
		"dfs.datanode.du.reserved":                                  "0",
	}
}

func (c *Cluster) yarnSite() properties {
	at := func(port int) string { return fmt.Sprintf("%s:%d", c.Host, port) }
	p := properties{
		"yarn.resourcemanager.hostname":                 c.Host,
		"yarn.resourcemanager.address":                  at(managerPort),
		"yarn.resourcemanager.scheduler.address":        at(schedulerPort),
		"yarn.resourcemanager.resource-tracker.address": at(trackerPort),
		"yarn.resourcemanager.admin.address":            at(adminPort),
		"yarn.resourcemanager.webapp.address":           at(managerHTTPPort),
		"yarn.resourcemanager.scheduler.class":          managerPackage + "scheduler.capacity.CapacityScheduler",
		// Short heartbeats and expiries keep tests short.
		"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms":          milliseconds(100 * time.Millisecond),
		"yarn.nm.liveness-monitor.expiry-interval-ms":                      milliseconds(c.options.NodeExpiry),
		"yarn.am.liveness-monitor.expiry-interval-ms":                      milliseconds(c.options.MasterExpiry),
		"yarn.resourcemanager.nm.liveness-monitor.interval-ms":             "500",
		"yarn.resourcemanager.am.max-attempts":                             "4",
		"yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "0",
		"yarn.nodemanager.sleep-delay-before-sigkill.ms":                   "250",
		"yarn.nodemanager.container-monitor.interval-ms":                   "500",
		"yarn.resourcemanager.connect.retry-interval.ms":                   "500",
		"yarn.scheduler.minimum-allocation-mb":                             "64",
		"yarn.scheduler.maximum-allocation-mb":                             strconv.Itoa(nodeMemory),
		"yarn.nodemanager.resource.memory-mb":                              strconv.Itoa(nodeMemory),
		"yarn.nodemanager.resource.cpu-vcores":                             "8",
		"yarn.nodemanager.vmem-check-enabled":                              "false",
		"yarn.nodemanager.pmem-check-enabled":                              "true",
		// Otherwise the check never kills.
		"yarn.nodemanager.resource.memory.enforced":                                     "false",
		"yarn.nodemanager.container-metrics.enable":                                     "false",
		"yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
		"yarn.nodemanager.env-whitelist":                                                "JAVA_HOME,PATH,LANG",
		"yarn.log-aggregation-enable":                                                   strconv.FormatBool(c.options.HDFS),
		"yarn.nodemanager.remote-app-log-dir":                                           "/app-logs",
		"yarn.node-attribute.fs-store.root-dir": "file://" +
			filepath.Join(c.dir, "attributes"),
		"yarn.webapp.ui2.enable": "false",
	}
	if c.options.GPUs > 0 {
		p["yarn.resource-types"] = "yarn.io/gpu"
	}
	if c.options.Recovery {
		p["yarn.resourcemanager.recovery.enabled"] = "true"
		p["yarn.resourcemanager.store.class"] = managerPackage + "recovery.FileSystemRMStateStore"
		p["yarn.resourcemanager.fs.state-store.uri"] = "file://" + filepath.Join(c.dir, "rmstate")
	}
	if len(c.options.Labels) > 0 {
		p["yarn.node-labels.enabled"] = "true"
		p["yarn.node-labels.fs-store.root-dir"] = "file://" + filepath.Join(c.dir, "labels")
	}
	maps.Copy(p, c.options.Site)
	return p
}

// nodeMemory is what each NodeManager offers, in MiB.
const nodeMemory = 8192

// capacityScheduler configures two queues: default may use everything, ml half.
func (c *Cluster) capacityScheduler() properties {
	const q = "yarn.scheduler.capacity."
	p := properties{
		q + "root.queues":                    "default,ml",
		q + "root.default.capacity":          "50",
		q + "root.default.maximum-capacity":  "100",
		q + "root.default.user-limit-factor": "10",
		q + "root.ml.capacity":               "50",
		q + "root.ml.maximum-capacity":       "50",
		q + "root.ml.user-limit-factor":      "10",
		q + "maximum-am-resource-percent":    "0.8",
		q + "resource-calculator":            "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
	}
	for _, l := range c.labels() {
		p[q+"root.accessible-node-labels"] = "*"
		p[q+"root.accessible-node-labels."+l+".capacity"] = "100"
		p[q+"root.default.accessible-node-labels"] = "*"
		p[q+"root.default.accessible-node-labels."+l+".capacity"] = "100"
		p[q+"root.ml.accessible-node-labels."+l+".capacity"] = "0"
	}
	for k, v := range c.options.Site {
		if strings.HasPrefix(k, q) {
			p[k] = v
		}
	}
	return p
}

// Set changes Options.Site for daemons that are started later, and for properties that daemons reload.
func (c *Cluster) Set(site map[string]string) {
	c.t.Helper()
	all := maps.Clone(c.options.Site)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, site)
	c.options.Site = all
	if err := c.write(); err != nil {
		c.t.Fatalf("write Hadoop's configuration: %v", err)
	}
}

// labels returns the distinct labels of Options.Labels.
func (c *Cluster) labels() []string {
	ls := slices.Clone(c.options.Labels)
	slices.Sort(ls)
	return slices.DeleteFunc(slices.Compact(ls), func(l string) bool { return l == "" })
}

// nodeSite returns the properties of one NodeManager.
func (c *Cluster) nodeSite(i int) properties {
	host, dir := c.nodeHost(i), filepath.Join(c.dir, fmt.Sprintf("node%d", i))
	at := func(port int) string { return fmt.Sprintf("%s:%d", host, port) }
	p := properties{
		"yarn.nodemanager.hostname":                  host,
		"yarn.nodemanager.bind-host":                 host,
		"yarn.nodemanager.address":                   at(nodePort),
		"yarn.nodemanager.localizer.address":         at(localizerPort),
		"yarn.nodemanager.webapp.address":            at(nodeHTTPPort),
		"yarn.nodemanager.collector-service.address": at(8048),
		"yarn.nodemanager.amrmproxy.address":         at(8049),
		"yarn.nodemanager.local-dirs":                filepath.Join(dir, "local"),
		"yarn.nodemanager.log-dirs":                  filepath.Join(dir, "logs"),
		// Agents in containers do not use the folders of the user who runs the tests.
		"yarn.nodemanager.admin-env": strings.Join(append(c.gpuEnvironment(i), "TFCLUSTER_CACHE="+c.Environments()), ","),
	}
	maps.Copy(p, c.gpuSite(i))
	return p
}
