package coordinator

import (
	"fmt"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// pythons groups the executors by the versions of their Python, of which there are few. Owned
// by the coordinator's loop.
type pythons struct {
	of    map[cluster.ExecutorID]versions
	hosts map[versions]map[cluster.ExecutorID]string // by executor
	noted map[[3]string]bool                         // reported differences: what, and both versions
}

// versions must be the same on all executors.
type versions struct{ python, tensorflow, keras string }

// set sets an executor's Python; nil: it has none yet.
func (p *pythons) set(id cluster.ExecutorID, host string, python *clusterpb.Python) {
	if had, ok := p.of[id]; ok {
		delete(p.of, id)
		delete(p.hosts[had], id)
		if len(p.hosts[had]) == 0 {
			delete(p.hosts, had)
		}
	}
	if python == nil {
		return
	}
	if p.of == nil {
		p.of, p.hosts = map[cluster.ExecutorID]versions{}, map[versions]map[cluster.ExecutorID]string{}
	}
	v := versions{python.GetVersion(), python.GetTensorflow(), python.GetKeras()}
	p.of[id] = v
	if p.hosts[v] == nil {
		p.hosts[v] = map[cluster.ExecutorID]string{}
	}
	p.hosts[v][id] = host
}

// differences returns the differences of an executor's Python from others', each one once per
// cluster.
func (p *pythons) differences(id cluster.ExecutorID) []string {
	v := p.of[id]
	var texts []string
	for other, hosts := range p.hosts {
		for _, d := range []struct{ what, a, b string }{
			{"Python", v.python, other.python}, {"TensorFlow", v.tensorflow, other.tensorflow}, {"Keras", v.keras, other.keras},
		} {
			key := [3]string{d.what, min(d.a, d.b), max(d.a, d.b)}
			if d.a == d.b || p.noted[key] {
				continue
			}
			if p.noted == nil {
				p.noted = map[[3]string]bool{}
			}
			p.noted[key] = true
			texts = append(texts, fmt.Sprintf("%s differs: %q on %s, %q on %s; one environment everywhere avoids errors that are hard to read",
				d.what, d.a, p.hosts[v][id], d.b, anyOf(hosts)))
		}
	}
	return texts
}

// anyOf returns one of the hosts.
func anyOf(hosts map[cluster.ExecutorID]string) string {
	for _, host := range hosts {
		return host
	}
	return ""
}
