"""ctx: a task's role, directories, and functions of its cluster.

It is the second argument of main_fun(args, ctx); a script calls tfcluster.context().
"""

from __future__ import annotations

import functools
import getpass
import glob
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfcluster.activity import EXPORT, Activity
from tfcluster.channel import Channel, number
from tfcluster.local_files import local_copies, used

if TYPE_CHECKING:
    from tfcluster.feed import DataFeed

_POLL = 0.5  # seconds between two searches for new checkpoints
_KERAS_FILES = ("*.keras", "*.weights.h5")
_IN_USE = re.compile(r'^(?:model_checkpoint_path|all_model_checkpoint_paths): "(.*)"$', re.MULTILINE)

_current: Context | None = None


def current() -> Context:
    """Returns the context of the task in this process."""
    if _current is None:
        raise RuntimeError("there is no ctx here: tfcluster.context() works in a program that `%tfcluster start` runs")
    return _current


def set_current(ctx: Context | None) -> None:
    """Sets the context; called by the runner, once."""
    global _current
    _current = ctx


class Context:
    """A task's role, directories and functions to communicate with the cluster.

    job_name        "chief", "worker", "ps", "evaluator"
    task_index      number within the role
    worker_num      number of this task among the training tasks: the chief is 0, then the workers
    num_workers     number of training tasks
    cluster_spec    {"worker": ["host:port", …], …}
    executor_id     number of this executor
    is_chief        the chief, or worker 0 where there is no chief
    defaultFS       file system that relative paths of absolute_path() belong to
    working_dir     base of the program's relative paths
    dir, log_dir, checkpoint_dir, export_dir    the run's directories
    epochs, mode    as given to `train`, `evaluate` or `inference`
    resumed         whether checkpoint_dir holds an older run's checkpoints
    """

    def __init__(self, said: Mapping[str, Any], channel: Channel) -> None:
        self._channel = channel
        self._watching = False
        self.job_name = str(said.get("job_name", "worker"))
        self.task_index = int(said.get("task_index", 0))
        self.cluster_spec: dict[str, list[str]] = _spec(said.get("cluster_spec"))
        has_chief = bool(self.cluster_spec.get("chief") or self.cluster_spec.get("master"))
        self.is_chief = self.job_name in ("chief", "master") or (
            not has_chief and self.job_name == "worker" and self.task_index == 0
        )
        self.worker_num = self.task_index + (1 if has_chief and self.job_name == "worker" else 0)
        self.num_workers = int(said.get("num_workers", 1))
        self.executor_id = int(said.get("executor_id", 0))
        self.defaultFS = str(said.get("default_fs") or "file://")
        self.working_dir = str(said.get("working_dir") or os.getcwd())
        self.dir = str(said.get("dir", ""))
        self.log_dir = str(said.get("log_dir", ""))
        self.checkpoint_dir = str(said.get("checkpoint_dir", ""))
        self.export_dir = str(said.get("export_dir", ""))
        self._epochs = int(said.get("epochs") or 1)
        self._mode = str(said.get("mode") or "train")
        self._feed: DataFeed | None = None
        self._copy_dir = str(
            said.get("copy_dir") or os.path.join(tempfile.gettempdir(), f"tfcluster-copies-{os.getuid()}")
        )
        self._host = str(said.get("host") or "this host")
        self.resumed = bool(said.get("resumed", False))

    def __repr__(self) -> str:
        return f"<tfcluster context of {self.job_name}:{self.task_index}, {self.num_workers} workers>"

    # ------------------------------------------------------------- paths

    def absolute_path(self, path: str) -> str:
        """Returns a path with a scheme unchanged, an absolute one on defaultFS, others below working_dir.

        On HDFS a relative path is below /user/NAME, as in Hadoop.
        """
        if re.match(r"^[a-zA-Z][a-zA-Z0-9+.-]*:", path):
            return path
        if self.defaultFS.startswith("file:"):
            return os.path.join(self.working_dir, path)
        root = self.defaultFS.rstrip("/")
        if path.startswith("/"):
            return root + path
        if root.startswith(("hdfs:", "viewfs:")):
            return f"{root}/user/{os.environ.get('HADOOP_USER_NAME') or getpass.getuser()}/{path}"
        return root + os.path.join(self.working_dir, path)

    def local_copy(self, uri: str, *, shard: bool = True) -> list[str]:
        """Copies files to this executor's disk and returns their paths there, in the files' order.

        uri is a file, a folder (with all below it, except names that begin with "." or
        "_") or a pattern (*, ?, [], **), as a path or file:// URI that this executor
        can read, or on hdfs://, which this executor must reach. With shard, worker i of
        n (a chief is worker 0) gets the files i, i+n, … of the sorted list, maybe none;
        without, every file. A file is not copied again unless it has changed. The
        copies are removed when the cluster ends.
        """
        share = (self.worker_num, self.num_workers) if shard else None
        if shard and self.job_name not in ("chief", "master", "worker"):
            raise ValueError(
                f"ctx.local_copy: {self.job_name} is not a worker, and only workers share the files: give shard=False"
            )
        uri = self.absolute_path(uri)
        if uri.startswith("hdfs:"):  # the agent copies: no libhdfs, no Java
            copies = self._channel.copy(uri, share)
        else:
            copies = local_copies(uri, share, self._copy_dir, self._host)
        self._channel.send("manifest", manifest={"data": {uri: used(copies)}})
        return copies

    @property
    def epochs(self) -> int:
        """Returns the number of passes over the data.

        After get_data_feed() it waits for the first `train`, `evaluate` or `inference`.
        """
        return self._epochs if self._feed is None else int(self._feed.plan.get("epochs") or 1)

    @property
    def mode(self) -> str:
        """Returns the purpose of the run: "train", "evaluate" or "inference"; waits as epochs does."""
        return self._mode if self._feed is None else str(self._feed.plan.get("mode") or "train")

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> DataFeed:
        """Returns the feed of records from `%tfcluster train DATA`, evaluate or inference to this task.

        Every chief and worker calls it. input_mapping {"column": "name"} chooses columns and names them. The
        names of TensorFlowOnSpark's queues have no meaning here.
        """
        if self.job_name not in ("chief", "master", "worker"):
            raise RuntimeError(
                f"ctx.get_data_feed: this task is {self.job_name}:{self.task_index}, and only the chief and the "
                "workers get records: call it only where ctx.job_name is chief or worker"
            )
        if self._feed is None:
            from tfcluster.feed import DataFeed
            from tfcluster.feed_reader import Reader

            open_feed = functools.partial(self._channel.service, "feed", "ctx.get_data_feed()")
            open_feed()  # from now on the task counts as waiting for data
            self._feed = DataFeed(
                lambda: Reader(*open_feed()),
                train_mode=train_mode,
                input_mapping=input_mapping,
                workers=self.num_workers,
                seed=self.worker_num,
                task=f"{self.job_name}:{self.task_index}",
                began=self._fed,
            )
        return self._feed

    @property
    def activity(self) -> Activity:
        """Returns the record of the program's progress; used by tfcluster.collective."""
        return self._channel.activity

    def _fed(self, plan: Mapping[str, Any]) -> None:
        """Records the fed data in the manifest, and after the feed the number of records."""
        assert self._feed is not None
        use = {"by": "feed", "rows": self._feed.records}
        self._channel.send("manifest", manifest={"data": {str(plan.get("data") or "data of the notebook"): use}})

    def group(self) -> tuple[str, str]:
        """Returns the agent's socket for collective calls, and its key; used by tfcluster.collective."""
        if self.job_name not in ("chief", "worker"):
            raise RuntimeError(
                f"this task is {self.job_name}:{self.task_index}, and only the chief and the workers make "
                "collective calls: call them only where ctx.job_name is chief or worker"
            )
        return self._channel.service("group", "a collective call")

    def end_feed(self, returned: Any) -> dict[str, Any]:
        """Ends the feed; returns an evaluation's metrics for the agent's op "result", or {}.

        They are the dict that main_fun returned; otherwise the metrics of the last model.evaluate; otherwise
        those of the last report. They travel with the task's result, because the driver has that before the
        task's end.
        """
        if self._feed is None or not self._feed.begun:
            return {}
        self._feed.end()
        self._fed(self._feed.plan)
        if self.mode != "evaluate":
            return {}
        found = returned if isinstance(returned, Mapping) else self._channel.evaluated or self._channel.last_report
        metrics = {str(name): n for name, value in found.items() if (n := number(value)) is not None}
        return {"evaluated": metrics, "records": self._feed.records}

    # ---------------------------------------------------------- progress

    def report(self, step: int | None = None, **metrics: Any) -> None:
        """Shows progress in the notebook. It does not block; at most five reports a second are sent.

        Metrics are numbers, also NumPy's and TensorFlow's; values that are not finite are omitted.
        total_steps=, epoch= and total_epochs= are for the progress bar. If every task reports
        each step when it has ended, a stop ends all of them at the same step: report then
        raises SystemExit(143), or calls the program's SIGTERM handler.
        """
        fields: dict[str, Any] = {"source": "ctx"}
        if step is not None:
            fields["step"] = int(step)
        for name in ("total_steps", "epoch", "total_epochs"):
            if metrics.get(name) is not None:
                fields[name] = int(metrics.pop(name))
        values = {name: n for name, value in metrics.items() if (n := number(value)) is not None}
        self._channel.report(fields, values)
        if step is not None:
            if not self._channel.steps.trained_by_trainer():
                self.activity.reported(int(step), last=int(step) == fields.get("total_steps"))
            self._channel.steps.step_ended(int(step))

    def barrier(self, name: str = "", timeout: float | None = 600) -> None:
        """Waits until every task of the run has called it with this name.

        Raises TimeoutError after timeout seconds.
        """
        self._channel.wait_barrier(name, timeout)

    # ------------------------------------------------------- checkpoints

    def checkpoints(self, directory: str | None = None) -> Iterator[str]:
        """Yields each new checkpoint of directory (default: checkpoint_dir), oldest first, for an evaluator.

        On an executor with a disk of its own, the chief's checkpoints in checkpoint_dir
        arrive a few seconds after they were saved. A checkpoint that was removed in the
        meantime may be missing.

        A checkpoint of tf.train.CheckpointManager is yielded as its prefix, a checkpoint
        of Keras (.keras, .weights.h5) as its path. After training the newest one is
        yielded, if it was not before, then the iteration ends.
        """
        directory = directory or self.checkpoint_dir
        seen: set[tuple[str, int]] = set()
        self._watching = True
        try:
            while True:
                over = self._channel.training_over()
                fresh = [found for found in _list_checkpoints(directory) if found not in seen]
                for found in fresh:
                    seen.add(found)
                    if _mtime(found[0]) is not None:
                        yield found[0]
                if over and not fresh:
                    return
                if not fresh:
                    self._channel.wait_training_over(_POLL)
        finally:
            self._watching = False

    def end_watching(self) -> bool:
        """Ends checkpoints(); returns False if nothing iterates it, or it was ended before.

        Called by the handler of SIGTERM.
        """
        if not self._watching or self._channel._training_over:
            return False
        self._channel.set_training_over()
        return True

    def export_saved_model(self, model: Any, dir: str | None = None) -> str:
        """Exports a model to dir (default: export_dir), written by one task only, and returns the path.

        Every task must call it, because reading some variables is a collective operation.
        Tasks other than the chief write to a temporary folder and remove it.
        """
        target = self.absolute_path(dir) if dir else self.export_dir
        with self.activity.during(EXPORT):
            if self.is_chief:
                _export(model, target)
                return target
            with tempfile.TemporaryDirectory(prefix="tfcluster-export-") as aside:
                _export(model, os.path.join(aside, "model"))
        return target

    # -------------------------------------------- kept of TensorFlowOnSpark

    def start_cluster_server(self, num_gpus: int = 0, rdma: bool = False) -> tuple[Any, Any]:
        """Returns a tf.train.ClusterSpec and a tf.distribute.Server of this task, for TensorFlow 1's style.

        An evaluator has no server: None.
        """
        import tensorflow as tf

        cluster = tf.train.ClusterSpec(self.cluster_spec)
        if self.job_name == "evaluator":
            return cluster, None
        server = tf.distribute.Server(cluster, job_name=self.job_name, task_index=self.task_index, protocol="grpc")
        return cluster, server

    def release_port(self) -> None:
        """Does nothing: TensorFlow can share the held port (SO_REUSEPORT)."""


def _spec(said: Any) -> dict[str, list[str]]:
    spec = json.loads(said) if isinstance(said, str) and said else said
    return {str(role): [str(a) for a in addresses] for role, addresses in dict(spec or {}).items()}


def _export(model: Any, path: str) -> None:
    export = getattr(model, "export", None)
    if callable(export):
        export(path)
        return
    import tensorflow as tf

    tf.saved_model.save(model, path)


def _list_checkpoints(directory: str) -> list[tuple[str, int]]:
    """Returns (path, time of last change in ns) of each complete checkpoint, oldest first."""
    if "://" in directory and not directory.startswith("file://"):
        return _list_remote(directory)
    directory = directory.removeprefix("file://")
    found: dict[str, int] = {}
    for folder, _, _ in os.walk(directory):
        for path in _tf_checkpoints(folder):
            if (changed := _mtime(path)) is not None:
                found[path] = changed
        for pattern in _KERAS_FILES:
            for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
                if (changed := _mtime(path)) is not None:
                    found[path] = changed
    return sorted(found.items(), key=lambda item: (item[1], item[0]))


def _tf_checkpoints(folder: str) -> list[str]:
    """Returns the prefixes in a folder's `checkpoint` state file."""
    try:
        with open(os.path.join(folder, "checkpoint"), encoding="utf-8") as f:
            state = f.read()
    except (OSError, UnicodeDecodeError):
        return []
    return [os.path.join(folder, json.loads(f'"{p}"')) for p in dict.fromkeys(_IN_USE.findall(state))]


def _mtime(path: str) -> int | None:
    """Returns the time of a checkpoint's last change in ns; None if it was removed, 0 for another URI."""
    for candidate in (path + ".index", path):
        try:
            return os.stat(candidate.removeprefix("file://")).st_mtime_ns
        except OSError:
            continue
    return 0 if "://" in path else None


def _list_remote(directory: str) -> list[tuple[str, int]]:
    import tensorflow as tf

    found: dict[str, int] = {}
    state = tf.train.get_checkpoint_state(directory)
    for path in state.all_model_checkpoint_paths if state else ():
        found[path] = 0
    for pattern in _KERAS_FILES:
        for path in tf.io.gfile.glob(directory.rstrip("/") + "/" + pattern):
            found[path] = tf.io.gfile.stat(path).mtime_nsec
    return sorted(found.items(), key=lambda item: (item[1], item[0]))


class _CallableModule(ModuleType):
    """The type of the module tfcluster.context, which is callable: the function has the same name."""

    def __call__(self) -> Context:
        return current()


sys.modules[__name__].__class__ = _CallableModule
