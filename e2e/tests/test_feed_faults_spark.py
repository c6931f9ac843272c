"""kill -9 in the middle of feeds of a DataFrame, on a real standalone Spark with two executors of one core."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import signal
from collections.abc import Iterator

import pytest
from conftest import Notebook, alive, processes, wait_for, written
from standalone import NEEDS_SPARK, any_standalone
from test_feed import COUNT, TOTAL
from test_feed_faults import memory, sockets

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

SESSION = """
from pyspark.sql import SparkSession, functions as F
spark = (SparkSession.builder.master({url!r}).config("spark.executor.memory", "512m").config("spark.executor.cores", 1)
    .config("spark.cores.max", 2).config("spark.sql.execution.arrow.maxRecordsPerBatch", 500).getOrCreate())
df = spark.range(0, 20_003, 1, 5).withColumn("wide", F.array_repeat(F.col("id").cast("float"), 500))  # 40 MB
few = spark.range(0, 5003, 1, 3)
"""
# The memory of a task is a tenth of its records, so that tasks of Spark wait for room when something is killed.
RESERVE = "%tfcluster reserve --backend spark --workers 2 --feed-memory 2m --no-zygote --framework none"
SLOW = """
def slow(args, ctx):
    import collections, os, pathlib, time
    feed, seen = ctx.get_data_feed(), collections.Counter()
    while not feed.should_stop():
        batch = feed.next_numpy(100)
        assert (batch["wide"][:, 7] == batch["id"]).all()
        seen.update(batch["id"].tolist())
        pathlib.Path(os.environ["TFCLUSTER_TEST"], f"task-{ctx.task_index}").write_text(str(os.getpid()))
        time.sleep(0.02)
    return dict(seen)
"""
# What the cell says; nothing: the feed goes on, because Spark tries the task again.
CAUSES = {
    "task": r"worker:\d on .*SIGKILL",
    "agent": r"worker:\d on .*(executor lost|is silent)",
    "executor": r"worker:\d on .*(executor lost|is silent)",
    "driver": "the driver of cluster .* died",
    "producer": "",
}


def victim(kind: str, env: dict[str, str], rng: random.Random) -> int:
    """A process of the feed that is on."""
    folder = pathlib.Path(env["TFCLUSTER_TEST"])
    if kind == "task":
        return int(written(folder / f"task-{rng.randrange(2)}"))
    found: list[int] = []

    def has_one() -> bool:  # not at every moment: between two of Spark's tasks there is no producer
        found[:] = [pid for pid, command in processes(f"TFCLUSTER_TEST={folder}").items() if is_a(kind, pid, command)]
        return bool(found)

    wait_for(f"a process of kind {kind}", has_one)
    return rng.choice(sorted(found))


def is_a(kind: str, pid: int, command: str) -> bool:
    """Whether a process is of this kind."""
    match kind:
        case "executor":
            return "CoarseGrainedExecutorBackend" in command
        case "producer":
            return "pyspark.daemon" in command and "tfcluster-feed" in mappings(pid)
        case _:
            return command.endswith(f" {kind}")


def mappings(pid: int) -> str:
    """What a process has mapped."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/maps").read_text()
    return ""


def executors_of_agents(env: dict[str, str]) -> list[str]:
    """The processes of Spark in which agents have slots, by the lock file that an agent has open."""
    found = []
    for pid, command in processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}").items():
        if command.endswith(" agent"):
            with contextlib.suppress(OSError):
                opened = {os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
                found += [path.rsplit("-", 2)[1] for path in opened if pathlib.Path(path).name.startswith("slot-")]
    return found


@pytest.fixture
def master(env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[str]:
    """The URL of a master with room for two executors, and for those that come after them."""
    with any_standalone(env, tmp_path) as url:
        yield url


def test_killed(notebook: Notebook, env: dict[str, str], master: str) -> None:
    """A clear cause, nothing left, and the next train works; where only Spark's task is killed, each record once."""
    rng = random.Random(int(os.environ.get("TFCLUSTER_SEED", "14")))
    marker, folder = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}", pathlib.Path(env["TFCLUSTER_TEST"])
    notebook.ok(SESSION.format(url=master) + COUNT + TOTAL + SLOW)
    notebook.ok(RESERVE)
    dead: set[pathlib.Path] = set()
    kinds = list(CAUSES) * max(1, int(os.environ.get("TFCLUSTER_ROUNDS", "5")) // len(CAUSES))
    rng.shuffle(kinds)
    for kind in kinds:
        for path in folder.glob("task-*"):
            path.unlink()
        notebook.ok("%tfcluster start slow")
        feeds = notebook.send("run = %tfcluster train df\ntotal(run)")
        wait_for("records in both tasks", lambda: len(list(folder.glob("task-*"))) == 2)
        with contextlib.suppress(AssertionError):
            wait_for("a random time", lambda: False, rng.random())
        pid = victim(kind, env, rng)
        if kind in ("agent", "executor"):
            dead.update(sockets(env))
        os.kill(pid, signal.SIGKILL)
        wait_for("the end of the process", lambda pid=pid: not alive(pid))
        cell = notebook.finish(feeds)
        print(kind, cell.status, (cell.error or cell.result).splitlines()[0])
        if CAUSES[kind]:
            assert cell.status == "error" and re.search(CAUSES[kind], cell.error), f"{kind}: {cell.all}"
            assert "Py4J" not in cell.error, f"{kind}: {cell.all}"
        else:
            assert cell.result == "(20003, {1}, 20003)", f"{kind}: {cell.all}"
        if kind == "driver":
            notebook.ok("%tfcluster reset --now")
        notebook.ok("%tfcluster start count")
        cell = notebook.ok("run = %tfcluster train few --epochs 2\ntotal(run)")
        assert cell.result == "(5003, {2}, 10006)", f"after {kind}: {cell.all}"
        wait_for("the end of the feed's memory", lambda: not memory(marker))
        wait_for("the end of the feed's sockets", lambda: set(sockets(env)) <= dead)
        cell = notebook.ok("list(spark.sparkContext.statusTracker().getActiveJobsIds()), spark.range(7).count()")
        assert cell.result == "([], 7)", f"after {kind}: {cell.all}"
        # A process that an agent is just starting has the agent's files and name, and a file may close while one looks.
        wait_for("agents in two executors", lambda: len(set(executors_of_agents(env))) == 2)
    notebook.ok("%tfcluster shutdown --force\nspark.stop()")
