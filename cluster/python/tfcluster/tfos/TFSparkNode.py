"""TensorFlowOnSpark's TFNodeContext: the second argument of map_fun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfcluster.tfos import TFNode


class TFNodeContext:
    """A task's role and functions, under TensorFlowOnSpark's names; all others are those of tfcluster's ctx.

    worker_num, executor_id  number of the task in the order ps, chief or master, evaluator, workers
    mgr                      see Manager
    tmp_socket               None: TensorFlow shares the port that is held for the task
    """

    def __init__(
        self,
        executor_id: int = 0,
        job_name: str = "",
        task_index: int = 0,
        cluster_spec: Mapping[str, Any] | None = None,
        defaultFS: str = "file://",  # noqa: N803 - TensorFlowOnSpark's names
        working_dir: str = ".",
        mgr: Any = None,
        tmp_socket: Any = None,
    ) -> None:
        self.worker_num = self.executor_id = executor_id
        self.job_name = job_name
        self.task_index = task_index
        self.cluster_spec = dict(cluster_spec or {})
        self.num_workers = sum(len(v) for k, v in self.cluster_spec.items() if k in ("master", "chief", "worker"))
        self.defaultFS = defaultFS
        self.working_dir = working_dir
        self.mgr = mgr
        self.tmp_socket = tmp_socket
        self._ctx: Any = None

    @classmethod
    def of(
        cls,
        ctx: Any,
        mark: bytes,
        default_fs: str,
        working_dir: str,
        master: str | None = None,
        evaluator: bool = False,
    ) -> TFNodeContext:
        """Returns the context of a task of tfcluster, whose chief is called master if that is asked for.

        mark is that of its records: see pickled. evaluator tells whether the cluster has one: it is in no cluster_spec.
        """
        spec, job = dict(ctx.cluster_spec), ctx.job_name
        if master == "master":
            job = "master" if job == "chief" else job
            spec = {"master" if role == "chief" else role: addresses for role, addresses in spec.items()}
        before = 0
        for role in ("ps", "chief", "master", "evaluator", "worker"):
            if role == job:
                break
            before += int(evaluator) if role == "evaluator" else len(spec.get(role, ()))
        made = cls(before + ctx.task_index, job, ctx.task_index, spec, default_fs, working_dir, Manager(ctx, mark))
        made._ctx = ctx
        return made

    def __getattr__(self, name: str) -> Any:
        ctx = self.__dict__.get("_ctx")
        if ctx is None or name.startswith("__"):
            raise AttributeError(f"TFNodeContext has no attribute {name!r}")
        return getattr(ctx, name)

    def absolute_path(self, path: str) -> str:
        """Returns a path with its scheme, as TensorFlowOnSpark does: see TFNode.hdfs_path."""
        return TFNode.hdfs_path(self, path)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> TFNode.DataFeed:
        """Returns the feed of TFCluster.train or inference to this task."""
        return TFNode.DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)


class Manager:
    """What programs use of TensorFlowOnSpark's TFManager: the key-value pairs of a task, and its feed."""

    def __init__(self, ctx: Any, mark: bytes) -> None:
        self.ctx = ctx
        self.mark = mark
        self._values: dict[str, Any] = {"state": "running"}

    def get(self, key: str) -> Any:
        """Returns a value; None if it was not set."""
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        """Sets a value, for this task."""
        self._values[key] = value

    def get_queue(self, name: str) -> Any:
        """Raises NotImplementedError: records come by a feed."""
        raise NotImplementedError(
            f"ctx.mgr.get_queue({name!r}): tfcluster has no queues of records: read them by "
            "TFNode.DataFeed(ctx.mgr).next_batch(n), and give results by batch_results"
        )
