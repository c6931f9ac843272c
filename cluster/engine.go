package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Engine describes an engine of reserve --backend to the verbs and the driver: its options,
// defaults and properties. Each backend's package has a function that returns it, and engines.go
// of the program lists them. No other code compares the names of engines.
type Engine struct {
	Name    string // value of --backend, and prefix of the clusters' names: yarn-1
	Title   string // for texts: YARN
	Backend Backend
	// Options are options of reserve and run that not every engine has.
	Options []EngineOption
	// NodeLabels: a role can ask for nodes with a label (--node-label).
	NodeLabels bool
	// OnThisHost: executors are processes on the driver's host. They read the user's files
	// in place, and tasks start in the notebook's folder.
	OnThisHost bool
	// NotebookSession: a cluster can run on a SparkSession of the notebook.
	NotebookSession bool
	// Hadoop: the engine belongs to Hadoop. A request contains the notebook's HADOOP_CONF_DIR
	// and HADOOP_USER_NAME, and without --dir results go to the user's folder on HDFS.
	Hadoop bool
	// OrphanGrace is how long executors wait after their driver died; 0: the default.
	OrphanGrace time.Duration
	// Diagnose returns the lines of doctor about the engine on this machine. The request has
	// the notebook's interpreter and, with Hadoop, its configuration. May be nil.
	Diagnose func(ctx context.Context, r *clusterpb.ReserveRequest) []Check
	// History reads about applications that have ended; nil: the engine keeps nothing.
	History EngineHistory
}

// EngineHistory reads what an engine keeps about applications, also after their end.
type EngineHistory interface {
	// IsApplication reports whether a name is an application ID of this engine. A cluster's
	// name never is.
	IsApplication(name string) bool
	// ReadLogs does what ApplicationHistory.ContainerLogs does, without an allocation. r has
	// the engine's configuration; locations is the result of LogLocations, or nil.
	ReadLogs(ctx context.Context, r *clusterpb.ReserveRequest, locations []byte, q LogQuery,
		emit func(heading string, lines []*clusterpb.Line) error,
	) error
	// Outcomes returns the state or final status of applications, by ID. An application
	// is missing if the engine does not answer within a few seconds.
	Outcomes(ctx context.Context, r *clusterpb.ReserveRequest, applications []string) map[string]string
}

// OptionKind is the type of the value of an engine's option.
type OptionKind int

// Types of values of engines' options.
const (
	TextOption     OptionKind = iota
	FlagOption                // no value
	CountOption               // a whole number from 0 to Max
	KeyValueOption            // K=V; the request has the key NAME.K
	ObjectOption              // the name of an object of the notebook
	SizeOption                // an amount of memory; the request has the number of bytes
)

// EngineOption is an option of reserve that is passed to the backend unchanged, in the
// request's map `engine` under the option's name. Engines may share an option.
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

// OfApplication returns the engine whose application ID a name is.
func (es Engines) OfApplication(name string) (Engine, bool) {
	i := slices.IndexFunc(es, func(e Engine) bool { return e.History != nil && e.History.IsApplication(name) })
	if i < 0 {
		return Engine{}, false
	}
	return es[i], true
}
