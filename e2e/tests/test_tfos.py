"""A program of TensorFlowOnSpark's names in a plain script: feeds, errors, independent tasks, one after the other."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from conftest import DEADLINE, ROOT
from standalone import NEEDS_SPARK

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

SCRIPT = """
import sys
from pyspark import SparkConf, SparkContext
from tfcluster.tfos import TFCluster, TFNode, TFParallel

def sums(args, ctx):
    from tensorflowonspark import TFNode  # which no Python here has: the task finds it
    feed, total, n = TFNode.DataFeed(ctx.mgr), 0, 0
    while not feed.should_stop():
        for record in feed.next_batch(10):
            total, n = total + record[0], n + 1
            assert record[1] is None and record[2] == [1] * (record[0] % 4), record
    print("summed", n, total, sys.argv == args, flush=True)

def squares(args, ctx):
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        if batch := feed.next_batch(10):
            feed.batch_results([(x, x * x) for x in batch])

def fails(args, ctx):
    feed = TFNode.DataFeed(ctx.mgr)
    feed.next_batch(10)
    raise ValueError("no good record")

SPARK = TFCluster.InputMode.SPARK
sc = SparkContext(conf=SparkConf().setAppName("t").setMaster("local[4]"))
numbers = sc.parallelize(range(1000), 4)
records = numbers.map(lambda i: (i, None, [1] * (i % 4)))

cluster = TFCluster.run(sc, sums, ["--x", "1"], 2, 0, input_mode=SPARK)
cluster.train(records, 2)
cluster.train(records, 1)
print("info", sorted((i["job_name"], i["task_index"]) for i in cluster.cluster_info))
cluster.shutdown()

cluster = TFCluster.run(sc, squares, None, 2, 0, input_mode=SPARK)
found = cluster.inference(numbers)
print("squared", found.collect() == [(i, i * i) for i in range(1000)])
cluster.shutdown()
print("after", found.count())

cluster = TFCluster.run(sc, fails, None, 2, 0, input_mode=SPARK)
for call in (lambda: cluster.train(records, 1), cluster.shutdown):
    try:
        call()
        print("no error")
    except Exception as e:
        print("raised", type(e).__name__, "no good record" in str(e))

one = TFCluster.run(sc, sums, [], 1, 0, input_mode=SPARK)
other = TFCluster.run(sc, sums, [], 1, 0, input_mode=SPARK, master_node="master")
other.train(records, 1)
one.shutdown()  # nothing was fed
other.shutdown()
TFParallel.run(sc, lambda args, ctx: print("parallel", ctx.worker_num, ctx.num_workers, args, flush=True), "a", 2)
TFCluster.run(sc, fails, None, 2, 0, input_mode=SPARK).train(records, 1)
"""


def test_script(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Every record arrives as it was, a cause reaches the caller, and a failed script ends with 1."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**env, "PYTHONPATH": str(ROOT / "cluster" / "python")}
    done = subprocess.run(
        [sys.executable, str(script)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE
    )
    said = done.stdout
    summed = [line.split("summed ")[1].split() for line in said.splitlines() if "summed " in line]
    assert sum(int(n) for n, *_ in summed) == 4000, said + done.stderr
    assert sum(int(total) for _, total, _ in summed) == 4 * 999 * 500, said
    assert len(summed) == 4, said
    assert all(argv == "True" for *_, argv in summed), said
    for words in (
        "info [('worker', 0), ('worker', 1)]",
        "squared True",
        "after 1000",
        "[worker:0] parallel 0 2 a",
        "[worker:1] parallel 1 2 a",
    ):
        assert words in said, said + done.stderr
    assert said.count("raised RunFailed True") == 2 and "no error" not in said, said + done.stderr
    assert done.returncode == 1
    assert "ValueError: no good record" in done.stderr, done.stderr
