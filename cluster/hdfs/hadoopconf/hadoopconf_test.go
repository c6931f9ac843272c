package hadoopconf_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

func write(t testing.TB, dir, name, xml string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name),
		[]byte("<?xml version=\"1.0\"?>\n<configuration>"+xml+"</configuration>"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLoad: later files override earlier ones, final values stay, and variables are expanded.
func TestLoad(t *testing.T) {
	t.Setenv("HADOOPCONF_TEST", "from the environment")
	dir := t.TempDir()
	write(t, dir, "core-site.xml", `
		<property><name>host</name><value> nn1 </value></property>
		<property><name>fs.defaultFS</name><value>hdfs://${host}:8020</value></property>
		<property><name>kept</name><value>first</value><final>true</final></property>
		<property><name>changed</name><value>first</value></property>
		<property><name>env</name><value>${env.HADOOPCONF_TEST}</value></property>
		<property><name>otherwise</name><value>${env.HADOOPCONF_NONE:-otherwise}</value></property>
		<property><name>unknown</name><value>a${nobody}b${host}</value></property>
		<property><name>self</name><value>x${self}</value></property>
		<property><name>open</name><value>${host</value></property>
		<property><name>none</name></property>`)
	write(t, dir, "yarn-site.xml", `
		<property><name>kept</name><value>second</value></property>
		<property><name>changed</name><value>second</value></property>`)
	c, err := hadoopconf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"host": "nn1", "fs.defaultFS": "hdfs:// nn1 :8020", "kept": "first", "changed": "second",
		"env": "from the environment", "otherwise": "otherwise", "unknown": "a${nobody}b nn1", "open": "${host", "none": "",
		"absent": "",
	} {
		if got := c.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if v := c.Get("self"); !strings.HasPrefix(v, "xxx") {
		t.Errorf("self is %q", v)
	}
	if v := c.Or("absent", "8"); v != "8" {
		t.Errorf("a missing property is %q", v)
	}
}

// TestErrors: a missing folder and a broken file return errors.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HADOOP_CONF_DIR", dir)
	if _, err := hadoopconf.FromEnvironment(); !errors.Is(err, hadoopconf.ErrNone) || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty folder: %v", err)
	}
	write(t, dir, "core-site.xml", "<property>")
	if _, err := hadoopconf.FromEnvironment(); err == nil || !strings.Contains(err.Error(), "core-site.xml") {
		t.Errorf("a broken file: %v", err)
	}
}

// FuzzLoad: any file is either read or returns an error.
func FuzzLoad(f *testing.F) {
	f.Add("<configuration><property><name>a</name><value>${b}</value></property></configuration>", "a")
	f.Add("<configuration><property><name>a</name><value>${a}${env.X:-y}${</value><final>true</final></property></"+
		"configuration>", "a")
	f.Add("<configuration/>", "u=rwx,g-w,+x,")
	f.Fuzz(func(t *testing.T, xml, name string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "core-site.xml"), []byte(xml), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := hadoopconf.Load(dir); err == nil {
			c.Get(name)
			_, _ = c.With("fs.permissions.umask-mode", name).Umask()
		}
	})
}
