package yarn

import (
	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
)

// Engine describes this backend. attempt is the managed ApplicationMaster's attempt that this process
// is, or nil.
func Engine(attempt *Attempt) cluster.Engine {
	return cluster.Engine{
		Name: "yarn", Title: "YARN", Backend: &Backend{Attempt: attempt},
		NodeLabels: true, Hadoop: true, Diagnose: Diagnose, History: containerlogs.History{},
		Options: []cluster.EngineOption{
			{Name: "queue", Help: "YARN queue"},
			{Name: "priority", Kind: cluster.CountOption, Max: 1_000_000, Help: "YARN priority among the queue's applications"},
			{Name: "tags", Help: "YARN application tags: A,B"},
			{
				Name: cluster.EngineManaged, Kind: cluster.FlagOption, Help: "YARN runs the cluster's driver too, " +
					"in a container: the cluster does not need this machine, and the nodes need no route to it",
			},
			{
				Name: masterMemoryKey, Kind: cluster.SizeOption,
				Help: "with --managed: memory of the ApplicationMaster's container; default 1g",
			},
			{
				Name: masterCPUsKey, Kind: cluster.CountOption, Max: 1024,
				Help: "with --managed: vcores of the ApplicationMaster's container; default 1",
			},
			{Name: masterLabelKey, Help: "with --managed: the ApplicationMaster runs on a node with this label"},
			{
				Name: "tensorboard", Kind: cluster.FlagOption,
				Help: "with --managed: TensorBoard on the application's page too, for the users to whom YARN shows that page",
			},
		},
	}
}
