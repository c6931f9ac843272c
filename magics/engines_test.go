package magics

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/local"
	"github.com/tfcluster/tfcluster/cluster/spark"
	"github.com/tfcluster/tfcluster/cluster/yarn"
)

// engines are the program's.
func engines() cluster.Engines {
	return cluster.Engines{local.Engine(nil), spark.Engine(nil), yarn.Engine(nil)}
}

// withHistory are the program's engines with another history of YARN's.
func withHistory(h cluster.EngineHistory) cluster.Engines {
	es := engines()
	i := slices.IndexFunc(es, func(e cluster.Engine) bool { return e.History != nil })
	es[i].History = h
	return es
}
