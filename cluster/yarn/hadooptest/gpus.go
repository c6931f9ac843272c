package hadooptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// fakeSMI replaces NVIDIA's command, since test machines have no GPU.
const fakeSMI = `#!/bin/sh
if [ -e "$0.broken" ]; then
	echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
	exit 9
fi
exec cat "$0.xml"
`

// smiPath returns the path of a node's nvidia-smi, whose folder is first on its containers' PATH.
func (c *Cluster) smiPath(i int) string {
	return filepath.Join(c.dir, fmt.Sprintf("node%d-bin", i), "nvidia-smi")
}

// GPUs returns the UUIDs of a node's GPUs, as its containers can list them.
func (c *Cluster) GPUs(i int) []string {
	var uuids []string
	for n := range c.options.GPUs {
		uuids = append(uuids, fmt.Sprintf("GPU-%s-%d", strings.ReplaceAll(c.nodeHost(i), ".", "-"), n))
	}
	return uuids
}

// writeGPUs writes a node's nvidia-smi.
func (c *Cluster) writeGPUs(i int) error {
	if c.options.GPUs == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"+
		"<nvidia_smi_log>\n<driver_version>550.54.15</driver_version>\n<attached_gpus>%d</attached_gpus>\n", c.options.GPUs)
	for n, uuid := range c.GPUs(i) {
		fmt.Fprintf(&b,
			`<gpu id="00000000:%02d:00.0"><product_name>NVIDIA T4</product_name><uuid>%s</uuid><minor_number>%d</minor_number>
<fb_memory_usage><total>15360 MiB</total><used>0 MiB</used><free>15360 MiB</free></fb_memory_usage>
<utilization><gpu_util>0 %%</gpu_util><memory_util>0 %%</memory_util></utilization>
<temperature><gpu_temp>41 C</gpu_temp>
<gpu_temp_max_threshold>96 C</gpu_temp_max_threshold>
<gpu_temp_slow_threshold>93 C</gpu_temp_slow_threshold></temperature>
<processes></processes></gpu>
`, n, uuid, n)
	}
	b.WriteString("</nvidia_smi_log>\n")
	path := c.smiPath(i)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(fakeSMI), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path+".xml", []byte(b.String()), 0o644)
}

// BreakGPUs makes a node's nvidia-smi fail, until MendGPUs.
func (c *Cluster) BreakGPUs(i int) {
	c.t.Helper()
	if err := os.WriteFile(c.smiPath(i)+".broken", nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// MendGPUs reverts BreakGPUs.
func (c *Cluster) MendGPUs(i int) {
	c.t.Helper()
	if err := os.Remove(c.smiPath(i) + ".broken"); err != nil {
		c.t.Fatal(err)
	}
}

// gpuEnvironment returns variables of a NodeManager's containers: nvidia-smi's folder, since bash has a different
// PATH there, and the folder of this cluster's GPU locks.
func (c *Cluster) gpuEnvironment(i int) []string {
	if c.options.GPUs == 0 {
		return nil
	}
	path := filepath.Dir(c.smiPath(i)) + string(os.PathListSeparator) + os.Getenv("PATH")
	return []string{"PATH=" + path, "TFCLUSTER_GPU_LOCKS=" + filepath.Join(c.dir, "gpu-locks")}
}

// gpuSite returns a NodeManager's properties for its GPUs.
func (c *Cluster) gpuSite(i int) properties {
	if c.options.GPUs == 0 {
		return nil
	}
	const plugins = "yarn.nodemanager.resource-plugins"
	bin := filepath.Dir(c.smiPath(i))
	p := properties{}
	if i >= c.options.GPUPlugins {
		p["yarn.nodemanager.resource-type.yarn.io/gpu"] = strconv.Itoa(c.options.GPUs)
		return p
	}
	p[plugins] = "yarn.io/gpu"
	// This must be a folder: Hadoop 3.3 appends the command's name.
	p[plugins+".gpu.path-to-discovery-executables"] = bin
	p[plugins+".gpu.allowed-gpu-devices"] = "auto"
	return p
}
