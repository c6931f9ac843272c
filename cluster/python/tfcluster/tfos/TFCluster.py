"""TensorFlowOnSpark's TFCluster, on a cluster of tfcluster's in the executors of a SparkContext."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfcluster import values
from tfcluster.errors import ClusterError, UsageError

_EPOCHS = 10  # of train with num_epochs=0
_POLL = 0.1  # seconds between two looks at a run


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
    _check(sc, input_mode, driver_ps_nodes, eval_node)
    workers = num_executors - num_ps - bool(master_node) - bool(eval_node)
    if workers < (0 if master_node else 1):
        raise UsageError(
            f"num_executors={num_executors} is too few for num_ps={num_ps}, master_node={master_node!r} and "
            f"eval_node={eval_node}: TFCluster.run needs a worker or a chief besides these"
        )
    roles: dict[str, Any] = {"worker": workers, "ps": num_ps, "evaluator": bool(eval_node)}
    if master_node:
        roles[master_node] = 1
    cluster = values.reserve(
        backend="spark",
        session=sc,
        roles={role: count for role, count in roles.items() if count},
        reserve_timeout=f"{reservation_timeout}s",
    )
    try:
        cluster.start(_main_fun(map_fun, _place(sc)), tf_args)
    except BaseException:
        cluster.shutdown(force=True)
        raise
    return TFCluster(sc, cluster, input_mode)


def _check(sc: Any, input_mode: int, driver_ps_nodes: bool, eval_node: bool) -> None:
    """Raises UsageError for what has no meaning here, or together."""
    if not hasattr(sc, "_jsc") and not hasattr(getattr(sc, "sparkContext", None), "_jsc"):
        raise UsageError(
            "TFCluster.run needs a SparkContext, which Spark Connect does not have: make the session with "
            ".master(…), or use tfcluster.reserve(session=spark) and Cluster.train(df)"
        )
    if driver_ps_nodes:
        raise UsageError(
            "driver_ps_nodes=True: parameter servers run on executors here, not in the driver: leave it out, and raise "
            "the number of executors if Spark has too few"
        )
    if eval_node and input_mode == InputMode.SPARK:
        raise UsageError("eval_node=True needs input_mode=InputMode.TENSORFLOW: the evaluator gets no records")


def _place(sc: Any) -> tuple[str, str]:
    """Returns the file system and the folder to which relative paths of the program belong."""
    default = "file://"
    if (context := getattr(sc, "_jsc", None)) is not None:
        default = context.hadoopConfiguration().get("fs.defaultFS")
    return default.replace("file:///", "file://"), os.getcwd()


def _main_fun(map_fun: Callable[[Any, Any], Any], place: tuple[str, str]) -> Callable[[Any, Any], Any]:
    """Returns main_fun, which gives map_fun a context with TensorFlowOnSpark's names."""

    @functools.wraps(map_fun)
    def main_fun(args: Any, ctx: Any) -> None:
        import sys

        from tfcluster.tfos.TFSparkNode import TFNodeContext

        if isinstance(args, list):
            sys.argv = args
        map_fun(args, TFNodeContext.of(ctx, *place))

    return main_fun


class TFCluster:
    """A cluster on which map_fun runs. Its tasks' errors are raised by the call that comes next."""

    def __init__(self, sc: Any, cluster: values.Cluster, input_mode: int) -> None:
        self.sc = sc
        self.input_mode = input_mode
        self.cluster = cluster  # of tfcluster, for its verbs: status, logs, why

    @property
    def cluster_info(self) -> list[dict[str, Any]]:
        """Returns a dict for each task: executor_id, host, job_name, task_index."""
        found = []
        for executor in self._status()["executors"]:
            job, _, index = str(executor.get("task", "")).partition(":")
            place = {"executor_id": int(executor["id"]), "host": executor.get("host", "")}
            found.append({**place, "job_name": job, "task_index": int(index or 0)})
        return found

    def _status(self) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):  # the verb also shows it
            return self.cluster.status()

    def _feeds(self, call: str) -> None:
        if self.input_mode != InputMode.SPARK:
            raise UsageError(
                f"TFCluster.{call} feeds an RDD: it requires input_mode=InputMode.SPARK in TFCluster.run "
                "(TensorFlowOnSpark's default is TENSORFLOW, where map_fun reads its data itself)"
            )

    def train(self, dataRDD: Any, num_epochs: int = 0, feed_timeout: int = 600, qname: str = "input") -> None:
        """Feeds the records of an RDD, or of each RDD of a DStream, to the workers; returns when all are fed.

        num_epochs=0 means 10, as in TensorFlowOnSpark. It may be called often. feed_timeout has no meaning: a
        program that is slow is waited for, one that ends is reported at once. qname must be "input".
        """
        self._feeds("train")
        if hasattr(dataRDD, "foreachRDD"):
            dataRDD.foreachRDD(lambda rdd: self._train(rdd, 1))
        else:
            self._train(dataRDD, num_epochs or _EPOCHS)

    def _train(self, rdd: Any, epochs: int) -> None:
        self.cluster.train(rdd.map(pickle.dumps), epochs=epochs, more=True)

    def inference(self, dataRDD: Any, feed_timeout: int = 600, qname: str = "input") -> Any:
        """Feeds the records of an RDD and returns an RDD with one result for each, in order within partitions.

        Unlike TensorFlowOnSpark's it is not lazy, and a run takes one inference and no train: it ends the feed.
        """
        self._feeds("inference")
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
        records = session.createDataFrame(dataRDD.map(_row), "record binary")
        found = self.cluster.inference(records, columns="record")
        return found.select("prediction").rdd.map(_unpickled)

    def shutdown(self, ssc: Any = None, grace_secs: int = 0, timeout: int = 259200) -> None:
        """Ends the feed, waits for map_fun on all tasks and releases the executors; raises RunFailed if one failed.

        With ssc, a StreamingContext, its batches end first. grace_secs has no meaning: the tasks are waited for.
        timeout limits the wait for the end of the feed, in seconds; -1: none. It never stops the SparkContext, and
        never ends the process.
        """
        try:
            if ssc is not None:
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
        while (run := self._status()["run"])["state"] == "running":
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


def _row(record: Any) -> tuple[bytearray]:
    return (bytearray(pickle.dumps(record)),)


def _unpickled(row: Any) -> Any:
    return pickle.loads(row[0])


__all__ = ["ClusterError", "InputMode", "TFCluster", "run"]
