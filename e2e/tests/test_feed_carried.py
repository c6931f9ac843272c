"""DataFrames of Spark executors on whose host no executor of the cluster is: the driver carries their connections."""

from __future__ import annotations

import os
import pathlib
import random
import signal
from collections.abc import Iterator

import pytest
from conftest import Notebook, alive, processes, wait_for
from standalone import NEEDS_SPARK, any_standalone
from test_feed import COUNT, TOTAL
from test_feed_faults import RESERVE, hidden, memory, sockets

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

# A session that is not the cluster's, whose executors are processes of their own.
SESSION = """
from pyspark.sql import SparkSession, functions as F
spark = (SparkSession.builder.master("MASTER").config("spark.executor.memory", "512m").config("spark.executor.cores", 1)
    .config("spark.cores.max", 2).config("spark.sql.execution.arrow.maxRecordsPerBatch", 1000).getOrCreate())
df = spark.range(0, 100_003, 1, 7)
"""
SLOW = """
def slow(args, ctx):
    import collections, os, pathlib, time
    feed, seen = ctx.get_data_feed(), collections.Counter()
    while not feed.should_stop():
        seen.update(int(record[0]) for record in feed.next_batch(500))
        pathlib.Path(os.environ["TFCLUSTER_TEST"], f"read-{ctx.task_index}").write_text(str(len(seen)))
        time.sleep(0.06)
    return dict(seen)
"""
PROGRAM = """
def doubles(args, ctx):
    import numpy as np
    feed = ctx.get_data_feed()
    while (batch := feed.next_numpy(700)) is not None:
        x = batch["x"]
        feed.results({"prediction": 2 * x, "pair": np.stack([x, -x], axis=1)})
"""
CHECK = """
rows = out.collect()
len(rows), len({r.id for r in rows}), all(r.prediction == 2 * r.id and r.pair == [r.id, -r.id] for r in rows)
"""


@pytest.fixture
def master(env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[str]:
    """A master of Spark with a worker that has room for two executors."""
    with any_standalone(env, tmp_path) as url:
        yield url


# The programs of inference connect again, so their sockets cannot be hidden from the producers by name.
ELSEWHERE = """
from tfcluster import feed_source
def absent(path):
    raise FileNotFoundError(path)
feed_source.Link = absent
"""


def records(path: pathlib.Path) -> int:
    """How many records a program has read; 0 while it writes the number."""
    return int("0" + path.read_text()) if path.exists() else 0


def open_sockets(pid: int) -> int:
    """How many sockets a process has."""
    return sum(os.readlink(fd).startswith("socket:") for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def test_executors_elsewhere(notebook: Notebook, env: dict[str, str], master: str) -> None:
    """Every record reaches one worker, once per epoch, also where an executor of Spark is killed in the middle."""
    marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
    notebook.ok(SESSION.replace("MASTER", master))
    notebook.ok(RESERVE)
    notebook.ok(COUNT + TOTAL + SLOW + PROGRAM)
    notebook.ok("%tfcluster start count")
    with hidden(env):
        (driver,) = (pid for pid, command in processes(marker).items() if command.endswith(" driver"))
        before = open_sockets(driver)
        cell = notebook.ok("run = %tfcluster train df --epochs 2\ntotal(run)")
        assert cell.result == "(100003, {2}, 200006)", cell.all

    notebook.ok("%tfcluster start slow")
    with hidden(env):
        feeds = notebook.send("run = %tfcluster train df\ntotal(run)")
        read = [pathlib.Path(env["TFCLUSTER_TEST"], f"read-{n}") for n in range(2)]
        wait_for("records in both programs", lambda: all(map(records, read)))
        pid = random.choice([p for p, c in processes(marker).items() if "CoarseGrainedExecutorBackend" in c])
        os.kill(pid, signal.SIGKILL)
        wait_for("the end of the executor", lambda: not alive(pid))
        assert sum(map(records, read)) < 90_000, "the executor was killed too late"
        cell = notebook.finish(feeds)
        assert cell.result == "(100003, {1}, 100003)", cell.all

    notebook.ok("%tfcluster start doubles")
    notebook.ok(ELSEWHERE)
    data = "data = df.select('id', F.col('id').cast('double').alias('x'))"
    notebook.ok(f"{data}\nout = %tfcluster inference data --columns x --keep id")
    assert notebook.ok(CHECK).result == "(100003, 100003, True)"
    wait_for("the end of the feed's memory", lambda: not memory(marker))
    wait_for("the end of the feed's sockets", lambda: not sockets(env))
    wait_for("the end of the connections", lambda: open_sockets(driver) <= before)


def test_connect(notebook: Notebook, env: dict[str, str]) -> None:
    """A DataFrame of Spark Connect is carried as one of a classic session is."""
    session = "from pyspark.sql import SparkSession, functions as F\nspark = SparkSession.builder.remote('local[2]')"
    notebook.ok(f"{session}.getOrCreate()\ndf = spark.range(0, 100_003, 1, 7)")
    notebook.ok(RESERVE)
    notebook.ok(COUNT + TOTAL + PROGRAM + ELSEWHERE)
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train df --epochs 2\ntotal(run)")
    assert cell.result == "(100003, {2}, 200006)", cell.all
    notebook.ok("%tfcluster start doubles")
    data = "data = df.select('id', F.col('id').cast('double').alias('x'))"
    notebook.ok(f"{data}\nout = %tfcluster inference data --columns x --keep id")
    assert notebook.ok(CHECK).result == "(100003, 100003, True)"


def test_driver_elsewhere(notebook: Notebook, env: dict[str, str]) -> None:
    """Where the executors do not reach the driver, either, the cell says what to do; the run goes on."""
    notebook.ok(SESSION.replace("MASTER", "local[2]"))
    notebook.ok(RESERVE)
    notebook.ok(COUNT + TOTAL + ELSEWHERE)
    notebook.ok("%tfcluster start count\ncarried, feed_source.Carried = feed_source.Carried, absent")
    cell = notebook.fails("%tfcluster train df")
    assert "no executor of the cluster is on" in cell.error and "--advertise HOST" in cell.error, cell.all
    notebook.ok("feed_source.Carried = carried")
    cell = notebook.ok("run = %tfcluster train df\ntotal(run)")
    assert cell.result == "(100003, {1}, 100003)", cell.all
