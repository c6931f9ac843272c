package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Engine describes an engine that reserve --backend names: what the verbs and a cluster's
// driver do differently on it. Each backend's package makes its own, engines.go of the
// program lists them, and nothing else compares names of engines.
type Engine struct {
	Name    string // of --backend, and in the names of clusters: yarn-1
	Title   string // as people write it: YARN
	Backend Backend
	// Options are those of reserve and run that only this engine has, or some engines.
	Options []EngineOption
	// NodeLabels: a role can ask for nodes with a label (--node-label).
	NodeLabels bool
	// OnThisHost: executors are processes of the driver's host. They read files where these
	// lie, and start in the notebook's folder.
	OnThisHost bool
	// NotebookSession: a cluster can be on a SparkSession of the notebook.
	NotebookSession bool
	// Hadoop: the engine is Hadoop's. A request takes the notebook's HADOOP_CONF_DIR and
	// HADOOP_USER_NAME with it, and results go to the user's folder on HDFS without --dir.
	Hadoop bool
	// OrphanGrace is how long executors wait for a driver that died; 0: the default.
	OrphanGrace time.Duration
	// Diagnose looks, for doctor, at what this machine has and lacks for the engine. The
	// request has the notebook's interpreter and, with Hadoop, its configuration. May be nil.
	Diagnose func(ctx context.Context, r *clusterpb.ReserveRequest) []Check
	// History is what the engine knows of applications that are over; nil: nothing.
	History EngineHistory
}

// EngineHistory is what an engine keeps of applications, also of those that are over.
type EngineHistory interface {
	// IsApplication tells the engine's name of an application from a cluster's name.
	IsApplication(name string) bool
	// ReadLogs is ApplicationHistory.ContainerLogs without an allocation. r says which
	// engine is meant; locations is what LogLocations gave, or nil.
	ReadLogs(ctx context.Context, r *clusterpb.ReserveRequest, locations []byte, q LogQuery, emit func(heading string, lines []*clusterpb.Line) error) error
	// Outcomes returns how applications stand or ended, by their ids, as far as the
	// engine tells within a few seconds.
	Outcomes(ctx context.Context, r *clusterpb.ReserveRequest, applications []string) map[string]string
}

// OptionKind is what the value of an engine's option is.
type OptionKind int

// Kinds of engines' options.
const (
	TextOption     OptionKind = iota
	FlagOption                // no value
	CountOption               // a whole number from 0 to Max
	KeyValueOption            // K=V, in the request as NAME.K
	ObjectOption              // the name of an object of the notebook
	SizeOption                // an amount of memory, in the request as bytes
)

// EngineOption is an option of reserve that reaches the backend as it is, in the request's
// map engine under the option's name. Engines that have an option of the same name share it.
type EngineOption struct {
	Name, Meta, Help string
	Kind             OptionKind
	Max              int64 // of CountOption
	Repeat           bool
}

// Engines are the engines of a program; the first is the default.
type Engines []Engine

// Find returns the engine with a name, and the default one for "".
func (es Engines) Find(name string) (Engine, bool) {
	i := slices.IndexFunc(es, func(e Engine) bool { return e.Name == name || name == "" })
	if i < 0 {
		return Engine{}, false
	}
	return es[i], true
}

// Names returns the engines' names.
func (es Engines) Names() []string {
	return es.NamesOf(func(Engine) bool { return true })
}

// NamesOf returns the names of the engines that keep accepts.
func (es Engines) NamesOf(keep func(Engine) bool) []string {
	var names []string
	for _, e := range es {
		if keep(e) {
			names = append(names, e.Name)
		}
	}
	return names
}

// OfApplication returns the engine that gave an application its name.
func (es Engines) OfApplication(name string) (Engine, bool) {
	i := slices.IndexFunc(es, func(e Engine) bool { return e.History != nil && e.History.IsApplication(name) })
	if i < 0 {
		return Engine{}, false
	}
	return es[i], true
}
