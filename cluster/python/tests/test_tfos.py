"""The names of TensorFlowOnSpark, as far as they need no cluster."""

from __future__ import annotations

import getpass
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from tfcluster.errors import UsageError
from tfcluster.tfos import TFCluster, TFNode, TFSparkNode

MARK = b"the mark"


class Feed:
    """A feed of pickled records, as TFCluster feeds them: rows in inference."""

    def __init__(self, records: list[Any], rows: bool) -> None:
        packed = [MARK + pickle.dumps(record) for record in records]
        self.left: list[Any] = [(p,) for p in packed] if rows else list(packed)
        self.results: list[Any] = []

    def next_batch(self, n: int) -> list[Any]:
        """Returns the next records."""
        batch, self.left = self.left[:n], self.left[n:]
        return batch

    def should_stop(self) -> bool:
        """Reports whether there are no more."""
        return not self.left

    def batch_results(self, results: list[Any]) -> None:
        """Keeps results."""
        self.results += results


def context(
    role: str, index: int, feed: Any = None, shape: dict[str, Any] | None = None, **spec: int
) -> TFSparkNode.TFNodeContext:
    """The context of a task of a cluster of these roles."""
    addresses = {name: [f"h:{n}" for n in range(count)] for name, count in spec.items()}
    ctx = SimpleNamespace(
        job_name=role, task_index=index, cluster_spec=addresses, get_data_feed=lambda train_mode: feed, log_dir="/logs"
    )
    return TFSparkNode.TFNodeContext.of(ctx, MARK, "hdfs://nn:8020", "/home/ana", **(shape or {}))


@pytest.mark.parametrize("rows", [False, True])
def test_records_as_they_were(rows: bool) -> None:
    """Objects that Arrow does not hold arrive as they were; results of inference may be any objects."""
    records = [(1, None, "a"), [1, [2, 3]], {"x": {1}}, 1 << 80]
    feed = Feed(records, rows)
    reader = TFNode.DataFeed(context("worker", 0, feed, worker=1).mgr)
    assert reader.next_batch(3) == records[:3]
    assert not reader.should_stop()
    assert reader.next_batch(3) == records[3:]
    assert reader.should_stop() and reader.done_feeding
    reader.batch_results([None, ("a", 1)])
    assert [pickle.loads(result.removeprefix(MARK)) for result in feed.results] == [None, ("a", 1)]


def test_other_data_is_not_unpickled() -> None:
    """Bytes of other data, which may be hostile pickles, and rows of columns are handed on as they are."""
    feed = Feed([], False)
    hostile = pickle.dumps(pytest.fail)
    feed.left = [hostile, (hostile,), (1, 2), (3,)]
    reader = TFNode.DataFeed(context("worker", 0, feed, worker=1).mgr)
    assert reader.next_batch(4) == [hostile, (hostile,), (1, 2), (3,)]


def test_input_mapping() -> None:
    """Columns have the order of the mapping's sorted names, values are lists."""
    feed = Feed([(1, "a"), (2, "b")], False)
    reader = context("worker", 0, feed, worker=1).get_data_feed(input_mapping={"label": "y", "image": "x"})
    assert reader.next_batch(5) == {"x": [1, 2], "y": ["a", "b"]}


@pytest.mark.parametrize(
    ("role", "index", "spec", "shape", "number", "workers"),
    [
        ("ps", 1, {"ps": 2, "chief": 1, "worker": 2}, {}, 1, 3),
        ("chief", 0, {"ps": 2, "chief": 1, "worker": 2}, {}, 2, 3),
        ("worker", 1, {"ps": 2, "chief": 1, "worker": 2}, {}, 4, 3),
        ("worker", 2, {"worker": 3}, {}, 2, 3),
        ("evaluator", 0, {"ps": 1, "worker": 2}, {"evaluator": True}, 1, 2),
        ("worker", 0, {"ps": 1, "worker": 2}, {"evaluator": True}, 2, 2),
        ("worker", 1, {"ps": 1, "worker": 2}, {"evaluator": True}, 3, 2),
        ("worker", 0, {"chief": 1, "worker": 1}, {"master": "master"}, 1, 2),
    ],
)
def test_numbers(role: str, index: int, spec: dict[str, int], shape: dict[str, Any], number: int, workers: int) -> None:
    """Tasks are numbered in the order ps, chief or master, evaluator, workers; ps are no workers."""
    ctx = context(role, index, shape=shape, **spec)
    assert (ctx.worker_num, ctx.executor_id, ctx.num_workers) == (number, number, workers)
    assert ctx.log_dir == "/logs"  # what TensorFlowOnSpark does not have


def test_master() -> None:
    """A chief that the program calls master is called so in its role and in the cluster's."""
    ctx = context("chief", 0, shape={"master": "master"}, chief=1, worker=1)
    assert (ctx.job_name, sorted(ctx.cluster_spec)) == ("master", ["master", "worker"])


@pytest.mark.parametrize(
    ("default", "path", "found"),
    [
        ("hdfs://nn:8020", "s3a://b/x", "s3a://b/x"),
        ("hdfs://nn:8020", "/x", "hdfs://nn:8020/x"),
        ("hdfs://nn:8020", "x", f"hdfs://nn:8020/user/{getpass.getuser()}/x"),
        ("file://", "/x", "file:///x"),
        ("file://", "x", "file:///home/ana/x"),
        ("s3a://b", "x", "s3a://b/x"),
    ],
)
def test_hdfs_path(default: str, path: str, found: str) -> None:
    """Paths get their schemes as in TensorFlowOnSpark."""
    ctx = TFSparkNode.TFNodeContext(defaultFS=default, working_dir="/home/ana")
    assert TFNode.hdfs_path(ctx, path) == found == ctx.absolute_path(path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sc": object()}, "needs a SparkContext, which Spark Connect does not have"),
        ({"num_executors": 1, "num_ps": 1}, "num_executors=1 is too few for num_ps=1"),
        ({"master_node": "boss"}, "TensorFlow knows this task as chief or master"),
        ({"driver_ps_nodes": True}, "parameter servers run on executors here"),
        ({"eval_node": True, "input_mode": TFCluster.InputMode.SPARK}, "the evaluator gets no records"),
    ],
)
def test_refusals(given: dict[str, Any], words: str) -> None:
    """What cannot mean the same is refused before anything is reserved, with what to do."""
    asked = {"sc": SimpleNamespace(_jsc=None, parallelize=None), "num_executors": 2, "num_ps": 0, **given}
    with pytest.raises(UsageError, match=words):
        TFCluster.run(map_fun=print, tf_args=None, **asked)


def test_queues() -> None:
    """Key-value pairs are kept; a queue is refused with what to use instead."""
    mgr = context("worker", 0, worker=1).mgr
    mgr.set("x", 1)
    assert (mgr.get("x"), mgr.get("y"), mgr.get("state")) == (1, None, "running")
    with pytest.raises(NotImplementedError, match=r"TFNode.DataFeed\(ctx.mgr\)"):
        mgr.get_queue("input")
