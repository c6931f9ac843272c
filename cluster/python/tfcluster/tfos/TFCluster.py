"""TensorFlowOnSpark's TFCluster, on a cluster of tfcluster's in the executors of a SparkContext."""

from __future__ import annotations

import functools
import os
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tfcluster import values
from tfcluster.errors import ClusterError, UsageError
from tfcluster.tfos import pickled

_EPOCHS = 10  # of train with num_epochs=0
_POLL = 0.2  # seconds between two looks at a run


class InputMode:
    """How map_fun gets its data: TENSORFLOW: it reads them itself; SPARK: train and inference feed an RDD."""

    TENSORFLOW = 0
    SPARK = 1


def run(
    sc: Any,
    map_fun: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    num_ps: int,
    tensorboard: bool = False,
    input_mode: int = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: int = 600,
    queues: Sequence[str] = ("input", "output", "error"),
    eval_node: bool = False,
    release_port: bool = True,
) -> TFCluster:
    """Reserves num_executors executors and starts map_fun(tf_args, ctx) on each; returns when all have entered it.

    Of the executors num_ps are parameter servers, one the master_node ("chief" or "master") and one the evaluator, if
    these are asked for, and the others workers. A list of arguments is also sys.argv there. queues and release_port
    have no meaning here: records travel by the feed, and TensorFlow shares the port that is held for it. Raises
    RunFailed if map_fun fails before all tasks have entered it.
    """
    _check(sc, input_mode, driver_ps_nodes, eval_node, master_node)
    if tensorboard:
        warnings.warn(
            "tensorboard=True: TFCluster.run starts none: run `tensorboard --logdir` on log_dir, or in a notebook "
            "%tfcluster tensorboard",
            stacklevel=2,
        )
    workers = num_executors - num_ps - bool(master_node) - bool(eval_node)
    if workers < (0 if master_node else 1):
        raise UsageError(
            f"num_executors={num_executors} is too few for num_ps={num_ps}, master_node={master_node!r} and "
            f"eval_node={eval_node}: TFCluster.run needs a worker or a chief besides these"
        )
    roles = {"worker": workers, "ps": num_ps, "evaluator": bool(eval_node), "chief": bool(master_node)}
    cluster = values.reserve(
        backend="spark",
        name=new_name(),
        session=sc,
        roles={role: count for role, count in roles.items() if count or role == "worker"},
        reserve_timeout=f"{reservation_timeout}s",
    )
    mark = secrets.token_bytes(16)
    shape = {**_place(sc), "mark": mark, "master": master_node, "evaluator": eval_node}
    try:
        cluster.start(main_fun_of(map_fun, shape), tf_args)
    except BaseException:
        cluster.shutdown(force=True)
        raise
    return TFCluster(sc, cluster, input_mode, mark)


def new_name() -> str:
    """Returns a name for a cluster: each call of run has one of its own."""
    return f"tfos-{secrets.token_hex(4)}"


def context_of(spark: Any) -> Any:
    """Returns the SparkContext of a session, or itself; raises UsageError if there is none."""
    try:
        found = spark if hasattr(spark, "_jsc") and hasattr(spark, "parallelize") else spark.sparkContext
    except Exception:  # each version of Spark Connect has its own
        found = None
    if found is None or not hasattr(found, "_jsc"):
        raise UsageError(
            "TFCluster.run needs a SparkContext, which Spark Connect does not have: make the session with "
            ".master(…), or use tfcluster.reserve(session=spark) and Cluster.train(df)"
        )
    return found


def _check(sc: Any, input_mode: int, driver_ps_nodes: bool, eval_node: bool, master_node: str | None) -> None:
    """Raises UsageError for what has no meaning here, or together."""
    context_of(sc)
    if master_node not in (None, "", "chief", "master"):
        raise UsageError(f"master_node={master_node!r}: TensorFlow knows this task as chief or master: name it so")
    if driver_ps_nodes:
        raise UsageError(
            "driver_ps_nodes=True: parameter servers run on executors here, not in the driver: leave it out, and raise "
            "the number of executors if Spark has too few"
        )
    if eval_node and input_mode == InputMode.SPARK:
        raise UsageError("eval_node=True needs input_mode=InputMode.TENSORFLOW: the evaluator gets no records")


def _place(sc: Any) -> dict[str, Any]:
    """Returns the file system and the folder to which relative paths of the program belong."""
    default = context_of(sc)._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    return {"default_fs": default.replace("file:///", "file://"), "working_dir": os.getcwd()}


def main_fun_of(map_fun: Callable[[Any, Any], Any], shape: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """Returns main_fun, which gives map_fun a context with TensorFlowOnSpark's names: see TFNodeContext.of."""

    @functools.wraps(map_fun)
    def main_fun(args: Any, ctx: Any) -> None:
        import sys

        from tfcluster.tfos.TFSparkNode import TFNodeContext

        if isinstance(args, list):
            sys.argv = args
        map_fun(args, TFNodeContext.of(ctx, **shape))

    return main_fun


class TFCluster:
    """A cluster on which map_fun runs. Its tasks' errors are raised by the call that comes next."""

    def __init__(self, sc: Any, cluster: values.Cluster, input_mode: int, mark: bytes) -> None:
        self.sc = sc
        self.input_mode = input_mode
        self.cluster = cluster  # of tfcluster, for its verbs: status, logs, why
        self._mark = mark  # of its records

    @property
    def cluster_info(self) -> list[dict[str, Any]]:
        """Returns a dict for each task: executor_id, host, job_name, task_index."""
        found = []
        for executor in self.cluster.look()["executors"]:
            job, _, index = str(executor.get("task", "")).partition(":")
            place = {"executor_id": int(executor["id"]), "host": executor.get("host", "")}
            found.append({**place, "job_name": job, "task_index": int(index or 0)})
        return found

    def _runs(self) -> bool:
        """Reports whether map_fun runs on some task."""
        return bool(self.cluster.look()["run"]["state"] == "running")

    def _feeds(self, call: str) -> None:
        if self.input_mode != InputMode.SPARK:
            raise UsageError(
                f"TFCluster.{call} feeds an RDD: it requires input_mode=InputMode.SPARK in TFCluster.run "
                "(TensorFlowOnSpark's default is TENSORFLOW, where map_fun reads its data itself)"
            )

    def train(self, dataRDD: Any, num_epochs: int = 0, feed_timeout: int = 600, qname: str = "input") -> None:
        """Feeds the records of an RDD, or of each RDD of a DStream, to the workers; returns when all are fed.

        num_epochs=0 means 10, as in TensorFlowOnSpark. It may be called often. feed_timeout and qname have no meaning:
        a program that is slow is waited for, one that ends is reported at once.
        """
        self._feeds("train")
        if hasattr(dataRDD, "foreachRDD"):
            dataRDD.foreachRDD(lambda rdd: self._train(rdd, 1) if self._runs() else None)
        else:
            self._train(dataRDD, num_epochs or _EPOCHS)

    def _train(self, rdd: Any, epochs: int) -> None:
        self.cluster.train(rdd.map(pickled.packer(self._mark)), epochs=epochs, more=True)

    def inference(self, dataRDD: Any, feed_timeout: int = 600, qname: str = "input") -> Any:
        """Feeds the records of an RDD and returns an RDD with one result for each, in order within partitions.

        Unlike TensorFlowOnSpark's it is not lazy, and a run takes one inference and no train: it ends the feed.
        """
        self._feeds("inference")
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
        pack, unpack = pickled.packer(self._mark), pickled.unpacker(self._mark)
        rows = dataRDD.map(lambda record: (bytearray(pack(record)),))
        found = self.cluster.inference(session.createDataFrame(rows, "record binary"), columns="record")
        return found.select("prediction").rdd.map(lambda row: unpack(row[0]))

    def shutdown(self, ssc: Any = None, grace_secs: int = 0, timeout: int = 259200) -> None:
        """Ends the feed, waits for map_fun on all tasks and releases the executors; raises RunFailed if one failed.

        With ssc, a StreamingContext, it first waits for the end of the stream, and ends it when map_fun has ended, as
        after feed.terminate(); an error of a batch is raised. grace_secs has no meaning: the tasks are waited for.
        timeout limits the wait for the end of the feed, in seconds; -1: none. It never stops the SparkContext, and
        never ends the process.
        """
        try:
            if ssc is not None:
                while not ssc.awaitTerminationOrTimeout(1):
                    if not self._runs():
                        ssc.stop(stopSparkContext=False, stopGraceFully=True)
            if self.input_mode == InputMode.SPARK:
                self._end_feed(timeout)
            self.cluster.wait()
        finally:
            self.cluster.shutdown(force=True)

    def _end_feed(self, timeout: int) -> None:
        """Ends the feed as soon as the program waits for records; returns at once where it reads none any more."""
        import numpy as np

        until = time.monotonic() + timeout
        while (run := self.cluster.look()["run"])["state"] == "running":
            if run["wants_data"]:
                self.cluster.train(np.array([], dtype=object))
                return
            if timeout >= 0 and until < time.monotonic():
                raise ClusterError(
                    f"map_fun has neither read the feed to its end nor returned within {timeout} s: "
                    "Cluster.why() of TFCluster's attribute cluster names the task that hangs"
                )
            time.sleep(_POLL)

    def tensorboard_url(self) -> str | None:
        """Returns None: a script has no page for TensorBoard; run `tensorboard --logdir` on Run.log_dir."""
        return None


__all__ = ["ClusterError", "InputMode", "TFCluster", "run"]
