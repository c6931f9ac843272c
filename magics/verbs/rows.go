package verbs

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/magics/command"
)

// What is still to come says so in one line.
const (
	notYetFeed = "not yet: this version does not feed data; read it in main_fun, with tf.data for instance, and use start and wait"
)

func clusterOption() command.Option {
	return command.Option{Name: "cluster", Short: "c", Kind: command.KindCluster, Help: "which cluster; default: this notebook's last, elsewhere the only live one"}
}

func nowOption() command.Option {
	return command.Option{Name: "now", Kind: command.KindFlag, Help: "run at once, beside a cell that is busy or hangs; the line is not expanded"}
}

func jsonOption() command.Option {
	return command.Option{Name: "json", Kind: command.KindFlag, Help: "print JSON"}
}

func runOption() command.Option {
	return command.Option{Name: "run", Kind: command.KindRun, Help: "which run; default: the active or last one"}
}

func reserveOptions() []command.Option {
	const res, rol, env, eng, life = "Resources, each also for one role: --ps-memory, --worker-node-label", "For one role: --worker-depends-on ps, --db-kind sidecar", "Environment", "Engine", "Lifetime"
	return []command.Option{
		{Name: "backend", Kind: command.KindChoice, Choices: []string{"local", "spark", "yarn"}, Default: "local", Help: "where executors run"},
		{Name: "workers", Kind: command.KindCount, Max: command.MaxExecutors, Default: "2", Help: "workers"},
		{Name: "ps", Kind: command.KindCount, Max: command.MaxExecutors, Default: "0", Help: "parameter servers, for ParameterServerStrategy"},
		{Name: "chief", Kind: command.KindFlag, Help: "one executor more, the chief"},
		{Name: "evaluator", Kind: command.KindFlag, Help: "one executor more, which evaluates checkpoints"},
		{Name: "role", Kind: command.KindRoleCount, Repeat: true, Help: "executors of a role of your own"},

		{Name: "gpus", Kind: command.KindCount, Max: 64, PerRole: command.AlsoFor, Group: res, Help: "GPUs a chief and worker; ps and evaluator get none unless asked"},
		{Name: "cpus", Kind: command.KindNumber, Max: 4096, PerRole: command.AlsoFor, Group: res, Help: "CPUs a chief and worker; on local the default is a fair share"},
		{Name: "memory", Kind: command.KindSize, PerRole: command.AlsoFor, Group: res, Help: "memory a chief and worker: 512m, 4g"},
		{Name: "node-label", Kind: command.KindText, Only: "yarn", PerRole: command.AlsoFor, Group: res, Help: "YARN node label"},

		{Name: "kind", Kind: command.KindChoice, Choices: cluster.Kinds(), PerRole: command.OnlyFor, Group: rol, Help: "the run waits for tracked tasks and fails with them, ends untracked ones but fails with them, and only tells of a sidecar's failure; ps is untracked, evaluator, sidecar and tensorboard are sidecars, others are tracked"},
		{Name: "depends-on", Kind: command.KindRoles, PerRole: command.OnlyFor, Group: rol, Help: "launched once these are there: tracked ones have ended well, others are in their program"},
		{Name: "end-within", Kind: command.KindDuration, PerRole: command.OnlyFor, Group: rol, Help: "it has this long when the tracked roles without this have ended; then a tracked one fails the run, another is ended. 2m for the evaluator"},
		{Name: "command", Kind: command.KindText, Meta: "'COMMAND'", PerRole: command.OnlyFor, Group: rol, Help: "what its tasks run instead of the program, by sh -c; where every role has one, no program is needed"},

		{Name: "framework", Kind: command.KindChoice, Choices: cluster.Frameworks(), Default: cluster.TensorFlow, Group: env, Help: "by what tasks find one another: TF_CONFIG, MASTER_ADDR and RANK, or JAX_COORDINATOR_ADDRESS; with none a program that is not Python's is a command"},
		{Name: "python", Kind: command.KindPath, Group: env, Help: "interpreter of the tasks; default: the notebook's"},
		{Name: "venv", Kind: command.KindPath, Meta: "ARCHIVE|DIR|.", Group: env, Help: "environment of the tasks, a folder or conda-pack's or venv-pack's archive; . is this notebook's. Where executors share no disk it is packed, and unpacked once a host"},
		{Name: "py-files", Kind: command.KindPath, Repeat: true, Group: env, Help: "Python files, packages or zips for the tasks, read again at each start"},
		{Name: "files", Kind: command.KindPath, Meta: "PATH[::NAME][#archive]", Repeat: true, Group: env, Help: "files and folders for the tasks' working directory, read again at each start; #archive unpacks a zip or tar.gz. On local they are read where they lie"},
		{Name: "env", Kind: command.KindEnv, Repeat: true, Group: env, Help: "environment variable of the tasks; K alone takes the notebook's"},
		{Name: "no-zygote", Kind: command.KindFlag, Group: env, Help: "a fresh interpreter for each task instead of a fork of a warm one"},

		{Name: "master", Kind: command.KindText, Meta: "URL", Only: "spark", Engine: "master", Group: eng, Help: "Spark master: spark://HOST:7077, yarn, k8s://…, local[N]; a session of the cluster's own is made there"},
		{Name: "session", Kind: command.KindObject, Only: "spark", Engine: "session", Group: eng, Help: "SparkSession of the notebook to run on; default: spark, where there is one and no --master"},
		{Name: "conf", Kind: command.KindKeyValue, Repeat: true, Only: "spark", Engine: "conf", Group: eng, Help: "Spark setting"},
		{Name: "packages", Kind: command.KindText, Only: "spark", Engine: "packages", Group: eng, Help: "Spark packages"},
		{Name: "queue", Kind: command.KindText, Only: "spark yarn", Engine: "queue", Group: eng, Help: "YARN queue"},
		{Name: "priority", Kind: command.KindCount, Max: 1_000_000, Only: "yarn", Engine: "priority", Group: eng, Help: "YARN priority among the queue's applications"},
		{Name: "tags", Kind: command.KindText, Only: "yarn", Engine: "tags", Group: eng, Help: "YARN application tags: A,B"},
		{Name: "managed", Kind: command.KindFlag, Only: "yarn", Engine: "managed", Group: eng, Help: "YARN runs the cluster's driver too, in a container: the cluster does not need this machine, nor a road from the nodes to it"},
		{Name: "tensorboard", Kind: command.KindFlag, Only: "yarn", Engine: "tensorboard", Group: eng, Help: "with --managed: TensorBoard on the application's page too, for whoever YARN shows that to"},
		{Name: "advertise", Kind: command.KindText, Meta: "HOST[:PORTS]", Group: eng, Help: "address that executors dial"},

		{Name: "reserve-timeout", Kind: command.KindDuration, Default: "10m", Group: life, Help: "give up, with the reason, after this long"},
		{Name: "timeout", Kind: command.KindDuration, Group: life, Help: "the same as --reserve-timeout"},
		{Name: "idle", Kind: command.KindIdle, Meta: "T|never", Default: "30m", Group: life, Help: "released after this long without a run or a client"},
		{Name: "name", Kind: command.KindCluster, Group: life, Help: "name of the cluster; default: local-1, …"},
		{Name: "dir", Kind: command.KindPath, Meta: "URI", Group: life, Help: "results: a folder, hdfs://HOST/PATH or hdfs:///PATH; default ./tfcluster-runs/NAME"},
		{Name: "replace", Kind: command.KindFlag, Group: life, Help: "release this notebook's cluster first if its options differ"},
		{Name: "profile", Kind: command.KindText, Meta: "NAME", Group: life, Help: "take the table [profile.NAME] of the configuration files"},
	}
}

func startOptions() []command.Option {
	return []command.Option{
		{Name: "args", Kind: command.KindObject, Help: "object of the notebook given to main_fun instead of the words"},
		{Name: "again", Kind: command.KindFlag, Help: "the last program and words"},
		{Name: "resume", Kind: command.KindResume, Meta: "RUN|last", Bare: "last", Help: "take up the checkpoints of an older run"},
		{Name: "wait", Kind: command.KindFlag, Help: "wait for the end, as the verb wait does"},
		{Name: "max-restarts", Kind: command.KindCount, Max: 1000, Default: "0", Help: "restarts after a lost or failed task"},
		{Name: "step-timeout", Kind: command.KindDuration, Help: "end the run when no step is reported for this long"},
		{Name: "run-timeout", Kind: command.KindDuration, Help: "end the run after this long"},
		{Name: "show", Kind: command.KindShow, Meta: "all|chief|TASK", Default: "all", Help: "whose lines the cell shows"},
		{Name: "no-callback", Kind: command.KindFlag, Help: "do not add the Keras callback that reports progress"},
		{Name: "no-keras-patch", Kind: command.KindFlag, Help: "leave Keras 3's fit under MultiWorkerMirroredStrategy as it is"},
		{Name: "replace", Kind: command.KindFlag, Help: "end an active run first"},
		{Name: "working-dir", Kind: command.KindPath, Help: "folder in which the tasks start, on a disk that every executor has; default: on this machine the notebook's, on Spark and YARN each task's own"},
		{Name: "env", Kind: command.KindEnv, Repeat: true, Help: "environment variable of the tasks, for this run"},
	}
}

func followOptions() []command.Option {
	return []command.Option{
		{Name: "show", Kind: command.KindShow, Meta: "all|chief|TASK", Help: "whose lines the cell shows"},
		clusterOption(),
	}
}

// runOptions are reserve's and start's, each once.
func runOptions() []command.Option {
	options := reserveOptions()
	for _, o := range startOptions() {
		if !slices.ContainsFunc(options, func(have command.Option) bool { return have.Name == o.Name }) && o.Name != "again" && o.Name != "args" && o.Name != "wait" {
			options = append(options, o)
		}
	}
	return append(options, command.Option{Name: "detach", Kind: command.KindFlag, Help: "print the cluster's name and return once the program runs; with --managed once YARN has taken it"})
}

// Table makes the table.
func Table() *command.Table {
	return &command.Table{Verbs: append(append(lifeVerbs(), feedVerbs()...), lookVerbs()...)}
}

func lifeVerbs() []command.Verb {
	return []command.Verb{
		{
			Name: "reserve", Summary: "reserve executors and wait until every one is ready", Magic: true,
			Options: append(reserveOptions(), clusterOption()), Example: "reserve --workers 4 --gpus 1",
			Long: "Equal options while that cluster lives return it at once.",
		},
		{
			Name: "start", Summary: "start a program on every task; returns when all have entered it", Magic: true,
			Words: "PROGRAM [words]", Program: true, Cell: true, MaxWords: -1, Options: append(startOptions(), clusterOption()), Example: "start --wait main_fun 0.01",
			Long: "PROGRAM is a function of the notebook (main_fun), a script (train.py, train.py:function), or with %%tfcluster start the cell's body. " +
				"Options stand before it; every word after it is the program's.",
		},
		{
			Name: "wait", Summary: "wait until the run ends, showing progress and the tasks' lines", Magic: true, Shell: true,
			Options: followOptions(), Example: "wait", Long: "The first interrupt stops the run (30 s to checkpoint), a second one kills it; the cluster stays. In a shell it only ends the waiting for a run of run --managed --detach.",
		},
		{
			Name: "run", Summary: "reserve, start, wait and shut down", Shell: true, Words: "PROGRAM [words]", Program: true, MaxWords: -1,
			Options: runOptions(), Example: "run --workers 2 train.py --epochs 3",
		},
	}
}

func feedVerbs() []command.Verb {
	return []command.Verb{
		{
			Name: "train", Summary: "feed data and wait; without DATA the same as wait", Magic: true, Words: "[DATA]", MaxWords: 1,
			Options: append([]command.Option{
				{Name: "epochs", Kind: command.KindCount, Max: 1_000_000, NotYet: notYetFeed, Help: "passes over DATA"},
				{Name: "steps", Kind: command.KindCount, Max: 1 << 40, NotYet: notYetFeed, Help: "steps at most"},
				{Name: "more", Kind: command.KindFlag, NotYet: notYetFeed, Help: "another train or inference may follow"},
				{Name: "detach", Kind: command.KindFlag, NotYet: notYetFeed, Help: "do not wait"},
				{Name: "schema", Kind: command.KindText, NotYet: notYetFeed, Help: "of TFRecord or CSV files"},
			}, followOptions()...), Example: "train",
		},
		{Name: "evaluate", Summary: "feed data with ctx.mode == \"evaluate\"", Magic: true, Words: "DATA", MaxWords: -1, NotYet: notYetFeed},
		{Name: "inference", Summary: "feed data and collect predictions", Magic: true, Words: "DATA", MaxWords: -1, NotYet: notYetFeed},
	}
}

func lookVerbs() []command.Verb {
	logs := []command.Option{
		{Name: "lines", Short: "n", Kind: command.KindCount, Max: 10_000_000, Default: "100", Help: "the last N lines"},
		{Name: "follow", Short: "f", Kind: command.KindFlag, Help: "go on as lines come; an interrupt ends the following only"},
		{Name: "task", Kind: command.KindTask, Help: "one task's lines; a container of YARN's: what that wrote, container_…"},
		{Name: "grep", Kind: command.KindPattern, Help: "lines that match"},
		{Name: "since", Kind: command.KindSince, Help: "lines from then on: 10m, 14:30, 2026-01-02T15:04:05Z"},
		runOption(), clusterOption(), nowOption(),
	}
	hard := command.Option{Name: "hard", Kind: command.KindFlag, Help: "SIGKILL without grace, new agents and a new warm Python"}
	force := command.Option{Name: "force", Kind: command.KindFlag, Help: "although a run is active"}
	all := command.Option{Name: "all", Kind: command.KindFlag, Help: "every cluster of yours on this host, live or dead"}
	earlier := command.Option{Name: "all", Kind: command.KindFlag, Help: "also the runs that earlier clusters left in its directory"}
	logdir := command.Option{Name: "logdir", Kind: command.KindPath, Help: "another log directory"}
	spark := command.Option{Name: "spark-discovery", Kind: command.KindFlag, Help: "print this machine's GPUs as Spark's discovery script does"}
	return []command.Verb{
		{Name: "status", Summary: "the cluster, its executors and its run", Magic: true, Shell: true, Now: true, Options: []command.Option{all, runOption(), jsonOption(), clusterOption(), nowOption()}, Example: "status"},
		{
			Name: "logs", Summary: "the tasks' lines", Magic: true, Shell: true, Now: true, Options: logs, Example: "logs -f --task worker:1",
			Long: "Also of a cluster that is over. -c application_… shows what the containers of an application of YARN's wrote themselves: the agents, a managed cluster's driver.",
		},
		{Name: "tensorboard", Summary: "TensorBoard in the cell", Magic: true, Now: true, Options: []command.Option{logdir, runOption(), clusterOption(), nowOption()}, Example: "tensorboard"},
		{Name: "gpus", Summary: "the GPUs, and who holds them", Magic: true, Shell: true, Now: true, Options: []command.Option{jsonOption(), spark, clusterOption(), nowOption()}, Example: "gpus"},
		{
			Name: "stop", Summary: "end the run; the executors stay", Magic: true, Shell: true, Now: true, Options: []command.Option{clusterOption(), nowOption()}, Example: "stop",
			Long: "Programs that report steps (Keras fit, ctx.report) get SystemExit(143) at the same step on every task, others where they are. They have 30 s to save.",
		},
		{Name: "reset", Summary: "end what hangs, was lost or orphaned; free GPUs and ports; replace lost executors", Magic: true, Shell: true, Now: true, Options: []command.Option{hard, clusterOption(), nowOption()}, Example: "reset"},
		{Name: "detach", Summary: "let the run go on when this kernel shuts down", Magic: true, Now: true, Options: []command.Option{clusterOption(), nowOption()}, Example: "detach"},
		{Name: "attach", Summary: "take up a cluster that lives already", Magic: true, Shell: true, Now: true, Words: "[NAME]", MaxWords: 1, Options: []command.Option{clusterOption(), nowOption()}, Example: "attach local-1"},
		{
			Name: "history", Summary: "the runs of the cluster", Magic: true, Shell: true, Now: true, Options: []command.Option{earlier, jsonOption(), clusterOption(), nowOption()}, Example: "history",
			Long: "Also of a cluster that is over; -c takes its name, or YARN's of its application.",
		},
		{Name: "shutdown", Summary: "release the cluster", Magic: true, Shell: true, Now: true, Options: []command.Option{force, clusterOption(), nowOption()}, Example: "shutdown"},
		{Name: "doctor", Summary: "what this machine has and lacks, each with a remedy", Magic: true, Shell: true, Now: true, Options: []command.Option{clusterOption(), nowOption()}, Example: "doctor"},
		{Name: "help", Summary: "this list, or one verb", Magic: true, Shell: true, Now: true, Words: "[VERB]", MaxWords: 1, Options: []command.Option{clusterOption(), nowOption()}, Example: "help start"},
	}
}
