// Package hadoopconf reads the Hadoop configuration: XML files of properties. Values may refer
// to other properties and to the environment, as ${name}, ${env.NAME} and ${env.NAME:-default}.
package hadoopconf

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNone reports that no configuration was found.
var ErrNone = errors.New("no Hadoop configuration: set HADOOP_CONF_DIR to the folder that holds core-site.xml, " +
	"before JupyterLab starts or with %env in the notebook")

// Conf holds the properties of a configuration folder. It is immutable.
type Conf struct {
	dir    string
	values map[string]string
}

// files are read in this order: a later file overrides an earlier one, unless the earlier value
// is final.
var files = []string{"core-site.xml", "hdfs-site.xml", "yarn-site.xml"}

// FromEnvironment reads the folder in HADOOP_CONF_DIR, YARN_CONF_DIR or HADOOP_HOME, or else
// /etc/hadoop/conf. It returns ErrNone if there is no configuration.
func FromEnvironment() (*Conf, error) {
	for _, name := range []string{"HADOOP_CONF_DIR", "YARN_CONF_DIR"} {
		if dir := os.Getenv(name); dir != "" {
			c, err := Load(dir)
			if errors.Is(err, ErrNone) {
				return nil, fmt.Errorf("%s=%s has no core-site.xml: %w", name, dir, err)
			}
			return c, err
		}
	}
	dirs := []string{"/etc/hadoop/conf"}
	if home := os.Getenv("HADOOP_HOME"); home != "" {
		dirs = []string{filepath.Join(home, "etc/hadoop"), filepath.Join(home, "conf"), dirs[0]}
	}
	for _, dir := range dirs {
		if c, err := Load(dir); !errors.Is(err, ErrNone) {
			return c, err
		}
	}
	return nil, ErrNone
}

// Load reads the files of a folder. It returns ErrNone if there are none.
func Load(dir string) (*Conf, error) {
	c := &Conf{dir: dir, values: map[string]string{}}
	final := map[string]bool{}
	found := false
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read the Hadoop configuration: %w", err)
		}
		found = true
		if err := c.add(b, final); err != nil {
			return nil, fmt.Errorf("the Hadoop configuration %s is not XML of Hadoop: %w; correct the file, "+
				"or set HADOOP_CONF_DIR to another folder", filepath.Join(dir, name), err)
		}
	}
	if !found {
		return nil, ErrNone
	}
	return c, nil
}

// New returns a configuration with the given properties.
func New(values map[string]string) *Conf { return &Conf{values: values} }

// With returns a copy of the configuration with one property changed.
func (c *Conf) With(name, value string) *Conf {
	values := maps.Clone(c.values)
	values[name] = value
	return &Conf{dir: c.dir, values: values}
}

func (c *Conf) add(b []byte, final map[string]bool) error {
	var list struct {
		Property []struct {
			Name  string  `xml:"name"`
			Value *string `xml:"value"`
			Final bool    `xml:"final"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal(b, &list); err != nil {
		return err
	}
	for _, p := range list.Property {
		name := strings.TrimSpace(p.Name)
		if name == "" || p.Value == nil || final[name] {
			continue
		}
		c.values[name] = *p.Value
		final[name] = p.Final
	}
	return nil
}

// Dir returns the folder that was read, or "".
func (c *Conf) Dir() string { return c.dir }

// Get returns the value of a property with its variables expanded, or "" if it is not set.
// Unknown variables are not expanded.
func (c *Conf) Get(name string) string { return strings.TrimSpace(c.expand(c.values[name])) }

// WithPrefix returns the properties whose names begin with one of the prefixes, as returned by
// Get.
func (c *Conf) WithPrefix(prefixes ...string) map[string]string {
	matching := map[string]string{}
	for name := range c.values {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			matching[name] = c.Get(name)
		}
	}
	return matching
}

// Or returns the value of a property, or otherwise if it is not set or empty.
func (c *Conf) Or(name, otherwise string) string { return cmp.Or(c.Get(name), otherwise) }

// maxExpansions ends the expansion of a value that refers to itself, as in Hadoop.
const maxExpansions = 20

func (c *Conf) expand(s string) string {
	for from, n := 0, 0; n < maxExpansions; n++ {
		start := strings.Index(s[from:], "${")
		if start < 0 {
			return s
		}
		start += from
		length := strings.IndexByte(s[start:], '}')
		if length < 0 {
			return s
		}
		value, ok := c.variable(s[start+2 : start+length])
		if !ok {
			from = start + length // is not expanded
			continue
		}
		s = s[:start] + value + s[start+length+1:]
		from = start // the value may contain variables
	}
	return s
}

func (c *Conf) variable(name string) (string, bool) {
	env, ok := strings.CutPrefix(name, "env.")
	if !ok {
		v, ok := c.values[name]
		return v, ok
	}
	env, otherwise, hasOtherwise := strings.Cut(env, ":-")
	if !hasOtherwise {
		env, otherwise, hasOtherwise = strings.Cut(env, "-")
	}
	if v := os.Getenv(env); v != "" {
		return v, true
	}
	return otherwise, hasOtherwise
}

// User returns the user of Hadoop's simple authentication: HADOOP_USER_NAME, or the user of
// this process.
func User() (string, error) {
	if u := os.Getenv("HADOOP_USER_NAME"); u != "" {
		return u, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the name of the current user: %w; set HADOOP_USER_NAME", err)
	}
	return u.Username, nil
}
