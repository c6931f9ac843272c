package spark

import "github.com/tfcluster/tfcluster/cluster"

// Engine returns the description of this backend. extract extracts the Python package into a
// folder of caches and returns the entry for PYTHONPATH.
func Engine(extract func(cacheDir string) (string, error)) cluster.Engine {
	return cluster.Engine{
		Name: "spark", Title: "Spark", Backend: &Backend{PythonPath: extract},
		NotebookSession: true, Diagnose: diagnose,
		Options: []cluster.EngineOption{
			{
				Name: engineMaster, Meta: "URL",
				Help: "Spark master: spark://HOST:7077, yarn, k8s://…, local[N]; a session of the cluster's own is made there",
			},
			{
				Name: engineSession, Kind: cluster.ObjectOption,
				Help: "SparkSession of the notebook to run on; default: spark, where there is one and no --master",
			},
			{Name: "conf", Kind: cluster.KeyValueOption, Repeat: true, Help: "Spark setting"},
			{Name: "packages", Help: "Spark packages"},
			{Name: "queue", Help: "YARN queue"},
		},
	}
}
