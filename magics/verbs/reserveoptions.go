package verbs

import (
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/magics/command"
)

// Groups of reserve's options, as its help shows them.
const (
	groupMore        = "More roles"
	groupResources   = "Resources, each also for one role: --ps-memory, --worker-node-label"
	groupOneRole     = "For one role: --worker-depends-on ps, --db-kind sidecar"
	groupEnvironment = "Environment"
	groupEngine      = "Engine"
	groupLifetime    = "Lifetime"
)

func reserveOptions(engines cluster.Engines) []command.Option {
	advertise := command.Option{
		Name: "advertise", Kind: command.KindText, Meta: "HOST[:PORTS]", Group: groupEngine,
		Help: "address that executors dial",
	}
	return slices.Concat(executorOptions(engines), environmentOptions(), engineOptions(engines, groupEngine),
		[]command.Option{advertise}, lifetimeOptions())
}

// executorOptions are those of the executors and their roles.
func executorOptions(engines cluster.Engines) []command.Option {
	return []command.Option{
		{
			Name: "backend", Kind: command.KindChoice, Common: true, Choices: engines.Names(), Default: defaultEngine(engines),
			Help: "where executors run",
		},
		{Name: "workers", Kind: command.KindCount, Common: true, Max: command.MaxExecutors, Default: "2", Help: "workers"},
		{
			Name: "ps", Kind: command.KindCount, Common: true, Max: command.MaxExecutors, Default: "0",
			Help: "parameter servers, for ParameterServerStrategy",
		},
		{Name: "chief", Kind: command.KindFlag, Common: true, Help: "one executor more, the chief"},
		{Name: "evaluator", Kind: command.KindFlag, Group: groupMore, Help: "one executor more, which evaluates checkpoints"},
		{Name: "role", Kind: command.KindRoleCount, Repeat: true, Group: groupMore, Help: "executors of a role of your own"},

		{
			Name: "gpus", Kind: command.KindCount, Common: true, Max: 64, PerRole: command.AlsoFor, Group: groupResources,
			Help: "GPUs a chief and worker; ps and evaluator get none unless asked",
		},
		{
			Name: "cpus", Kind: command.KindNumber, Max: 4096, PerRole: command.AlsoFor, Group: groupResources,
			Help: "CPUs a chief and worker; on local the default is a fair share",
		},
		{
			Name: "memory", Kind: command.KindSize, Common: true, PerRole: command.AlsoFor, Group: groupResources,
			Help: "memory a chief and worker: 512m, 4g",
		},
		{
			Name: "feed-memory", Kind: command.KindSize, Default: "64m", Group: groupResources,
			Help: "shared memory of each task that train, evaluate or inference feeds; part of its --memory",
		},
		{Name: "node-label", Kind: command.KindText, Only: strings.Join(engines.NamesOf(func(e cluster.Engine) bool {
			return e.NodeLabels
		}), " "), PerRole: command.AlsoFor, Group: groupResources, Help: "YARN node label"},
		{
			Name: "pack", Kind: command.KindFlag, Group: groupResources,
			Only: strings.Join(engines.NamesOf(func(e cluster.Engine) bool { return !e.OnThisHost }), " "),
			Help: "tasks on as few hosts as possible, where tfcluster.collective goes through shared memory; " +
				"otherwise they spread over hosts",
		},

		{
			Name: "kind", Kind: command.KindChoice, Choices: cluster.Kinds(), PerRole: command.OnlyFor, Group: groupOneRole,
			Help: "the run waits for tracked tasks and fails with them, ends untracked ones but fails with them, " +
				"and only tells of a sidecar's failure; ps is untracked, evaluator, sidecar and tensorboard are sidecars, " +
				"others are tracked",
		},
		{
			Name: "depends-on", Kind: command.KindRoles, PerRole: command.OnlyFor, Group: groupOneRole,
			Help: "launched once these are there: tracked ones have ended well, others are in their program",
		},
		{
			Name: "end-within", Kind: command.KindDuration, PerRole: command.OnlyFor, Group: groupOneRole,
			Help: "it has this long when the tracked roles without this have ended; then a tracked one fails the run, " +
				"another is ended. 2m for the evaluator",
		},
		{
			Name: "command", Kind: command.KindText, Meta: "'COMMAND'", PerRole: command.OnlyFor, Group: groupOneRole,
			Help: "what its tasks run instead of the program, by sh -c; where every role has one, no program is needed",
		},
	}
}

// environmentOptions are those of the environment of tasks.
func environmentOptions() []command.Option {
	return []command.Option{
		{
			Name: "framework", Kind: command.KindChoice, Choices: cluster.Frameworks(), Default: cluster.TensorFlow,
			Group: groupEnvironment,
			Help: "by what tasks find one another: TF_CONFIG, MASTER_ADDR and RANK, or JAX_COORDINATOR_ADDRESS; " +
				"with none a program that is not Python's is a command",
		},
		{
			Name: "python", Kind: command.KindPath, Group: groupEnvironment,
			Help: "interpreter of the tasks; default: the notebook's",
		},
		{
			Name: "venv", Kind: command.KindPath, Common: true, Meta: "ARCHIVE|DIR|.", Group: groupEnvironment,
			Help: "environment of the tasks, a folder or conda-pack's or venv-pack's archive; . is this notebook's. " +
				"Where executors share no disk it is packed, and unpacked once a host",
		},
		{
			Name: "py-files", Kind: command.KindPath, Repeat: true, Group: groupEnvironment,
			Help: "Python files, packages or zips for the tasks, read again at each start",
		},
		{
			Name: "files", Kind: command.KindPath, Common: true, Meta: "PATH[::NAME][#archive]", Repeat: true,
			Group: groupEnvironment,
			Help: "files and folders for the tasks' working directory, read again at each start; " +
				"#archive unpacks a zip or tar.gz. On local they are read where they lie",
		},
		{
			Name: "env", Kind: command.KindEnv, Repeat: true, Group: groupEnvironment,
			Help: "environment variable of the tasks; K alone takes the notebook's",
		},
		{
			Name: "no-zygote", Kind: command.KindFlag, Group: groupEnvironment,
			Help: "a fresh interpreter for each task instead of a fork of a warm one",
		},
	}
}

// lifetimeOptions are those of a cluster's life and results.
func lifetimeOptions() []command.Option {
	return []command.Option{
		{
			Name: "reserve-timeout", Kind: command.KindDuration, Default: "10m", Group: groupLifetime,
			Help: "give up, with the reason, after this long",
		},
		{Name: "timeout", Kind: command.KindDuration, Group: groupLifetime, Help: "the same as --reserve-timeout"},
		{
			Name: "heartbeat-timeout", Kind: command.KindDuration, Group: groupLifetime,
			Default: cluster.HeartbeatTimeout.String(),
			Help:    "an executor whose agent is silent for this long is lost; at least 5s",
		},
		{
			Name: "idle", Kind: command.KindIdle, Meta: "T|never", Default: "30m", Group: groupLifetime,
			Help: "released after this long without a run or a client",
		},
		{
			Name: "name", Kind: command.KindCluster, Common: true, Group: groupLifetime,
			Help: "name of the cluster; default: local-1, …",
		},
		{
			Name: "dir", Kind: command.KindPath, Common: true, Meta: "URI", Group: groupLifetime,
			Help: "results: a folder, hdfs://HOST/PATH or hdfs:///PATH; default ./tfcluster-runs/NAME",
		},
		{
			Name: "retention", Kind: command.KindIdle, Meta: "T|never", Default: "30d", Group: groupLifetime,
			Help: "in the default " +
				"folder on HDFS, remove runs that are older and whose programs left no files; see history --prune",
		},
		{
			Name: "replace", Kind: command.KindFlag, Group: groupLifetime,
			Help: "release this notebook's cluster first if its options differ",
		},
		{
			Name: "profile", Kind: command.KindText, Meta: "NAME", Group: groupLifetime,
			Help: "take the table [profile.NAME] of the configuration files",
		},
	}
}
