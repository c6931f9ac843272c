"""E3: a feed of a session that runs slow tasks twice at a time (spark.speculation), on a real standalone cluster."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Iterator

import pytest
from conftest import Notebook, processes, wait_for
from standalone import NEEDS_SPARK, standalone
from test_feed import COUNT, TOTAL

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

SESSION = """
from pyspark.sql import SparkSession, functions as F
spark = (SparkSession.builder.master({url!r}).config("spark.executor.memory", "512m").config("spark.executor.cores", 1)
    .config("spark.speculation", True).config("spark.speculation.interval", "100ms")
    .config("spark.speculation.quantile", 0.5)
    .config("spark.speculation.multiplier", 1.1).config("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
    .config("spark.task.maxFailures", 4).getOrCreate())
"""
# The first attempt of the last partition waits after half of its records; another attempt of it does not.
DATA = """
def halting(number):
    import os, pathlib, time
    from pyspark import TaskContext
    task = TaskContext.get()
    if task.partitionId() == 3 and task.attemptNumber() == 0 and number == 35_000:
        end = time.monotonic() + 120
        while not pathlib.Path(os.environ["TFCLUSTER_TEST"], "go").exists() and time.monotonic() < end:
            time.sleep(0.05)
    return number
halt = F.udf(halting, "long")
df = spark.range(0, 40_000, 1, 4).select(halt("id").alias("x"))
"""
# The executors of the attempts of the last partition, of which the second is Spark's speculative copy.
ATTEMPTS = """
def attempts():
    context, found = spark.sparkContext, {}
    for stage in context.statusTracker().getActiveStageIds():
        tasks = context._jsc.sc().statusStore().taskList(stage, 0, 100)
        for task in (tasks.apply(i) for i in range(tasks.size())):
            if task.index() == 3:
                found[task.speculative()] = task.executorId()
    return found
"""


@pytest.fixture
def master(env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[str]:
    """The URL of a master with two hosts: Spark does not run two attempts of a task on one."""
    with standalone(env, tmp_path, "--cores", "1", "--memory", "1g", workers=2) as url:
        yield url


def test_speculation(notebook: Notebook, env: dict[str, str], master: str) -> None:
    """Each record arrives once, whether the slow attempt goes on or its executor is killed."""
    notebook.ok(SESSION.format(url=master) + DATA + ATTEMPTS + COUNT + TOTAL)
    notebook.ok("%tfcluster reserve --workers 2 --no-zygote --framework none")
    go = pathlib.Path(env["TFCLUSTER_TEST"], "go")
    for killed in (False, True):
        go.unlink(missing_ok=True)
        notebook.ok("%tfcluster start count\n%tfcluster train df --detach")
        slow = speculated(notebook)
        if killed:
            marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
            of_slow = f"--executor-id {slow} "
            (pid,) = (p for p, c in processes(marker).items() if "CoarseGrainedExecutorBackend" in c and of_slow in c)
            os.kill(pid, signal.SIGKILL)
        else:
            go.touch()
        cell = notebook.ok("run = %tfcluster wait\ntotal(run)")
        assert cell.result == "(40000, {1}, 40000)", cell.all


def speculated(notebook: Notebook) -> str:
    """Wait for a speculative attempt of the last partition; return the executor of the slow one beside it."""
    executors: dict[bool, str] = {}

    def both() -> bool:
        executors.clear()
        executors.update(eval(notebook.ok("attempts()").result))
        return len(executors) == 2

    wait_for("a speculative attempt beside the first one", both)
    return executors[False]
