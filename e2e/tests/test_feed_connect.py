"""How a feed of a session of Spark Connect ends early: the program fails, is killed, or the user interrupts."""

from __future__ import annotations

import os
import pathlib
import signal

import pytest
from conftest import Notebook, wait_for, written
from standalone import NEEDS_SPARK
from test_feed import COUNT, TOTAL
from test_feed_cases import ENDS, SPARK
from test_feed_ends import FAILS
from test_feed_faults import memory, sockets

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

SESSION = """
from pyspark.sql import functions as F
spark = c.spark()
long = spark.range(0, 10**10, 1, 12)
few = spark.range(0, 5003, 1, 3)
"""
PIDS = """
def pids(args, ctx):
    import os, pathlib, time
    feed = ctx.get_data_feed()
    while feed.next_numpy(1000) is not None:
        pathlib.Path(args[0], f"reads-{ctx.task_index}").write_text(str(os.getpid()))
        time.sleep(0.05)
"""


def test_ends(notebook: Notebook, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """E1, E5, E7 on Spark Connect: the program's cause in the cell, all slots free again, and nothing left."""
    pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    notebook.ok("c = " + SPARK.replace("spark", "spark --master local[4]"))
    notebook.ok(SESSION + COUNT + TOTAL + ENDS + FAILS + PIDS)

    notebook.ok(f"%tfcluster start fails {tmp_path}")
    cell = notebook.fails("%tfcluster train long")
    assert cell.ename == "RunFailed" and "ValueError: enough" in cell.error, cell.all
    assert "SparkConnect" not in cell.error, cell.all
    works(notebook, env)

    notebook.ok(f"%tfcluster start pids {tmp_path}")
    feeds = notebook.send("%tfcluster train long")
    wait_for("the programs", lambda: len(list(tmp_path.glob("reads-*"))) == 2)
    os.kill(int(written(tmp_path / "reads-1")), signal.SIGKILL)
    cell = notebook.finish(feeds)
    assert cell.ename == "RunFailed" and "worker:1" in cell.error and "SIGKILL" in cell.error, cell.all
    works(notebook, env)

    interrupted(notebook, tmp_path)
    works(notebook, env)
    notebook.ok("spark.stop()\n%tfcluster shutdown")


KILLED = """
import contextlib, threading
def early(batches):
    yield from batches
def hangs(batches):
    import pathlib, time
    kept = list(batches)  # Spark has the Python of early back, and lends it to the next task
    pathlib.Path({folder!r}, "hangs").touch()
    time.sleep(60)
    yield from kept
def killed():
    spark.addTag("killed")
    with contextlib.suppress(Exception):
        spark.range(0, 100, 1, 1).mapInArrow(early, "id long").mapInArrow(hangs, "id long").collect()
def slow(batches):
    import time
    for batch in batches:
        time.sleep(6)
        yield batch
slowly = spark.range(0, 6, 1, 1).mapInArrow(slow, "id long")
threading.Thread(target=killed).start()
"""


def test_pythons_of_a_killed_task(notebook: Notebook, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Spark ends the Pythons of a task that was killed two to four seconds later, also one that a feed has by then."""
    pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    notebook.ok("c = " + SPARK.replace("spark", "spark --master local[4]"))
    notebook.ok(SESSION + COUNT + TOTAL + "\n%tfcluster start count")
    notebook.ok(KILLED.replace("{folder!r}", repr(str(tmp_path))))
    wait_for("the task to be killed", (tmp_path / "hangs").exists)
    cell = notebook.ok("spark.interruptTag('killed')\nrun = %tfcluster train slowly\ntotal(run)")
    assert cell.result == "(6, {1}, 6)", cell.all
    works(notebook, env)
    notebook.ok("spark.stop()\n%tfcluster shutdown")


def interrupted(notebook: Notebook, folder: pathlib.Path) -> None:
    """E5: session, cluster and another operation of the session survive the interrupt of a feed."""
    for path in folder.glob("reads-*"):
        path.unlink()
    go = folder / "go"
    notebook.ok(f"go = {str(go)!r}")
    notebook.ok("""
import os, threading, time
other = []
def beside():
    def held(i):
        while not os.path.exists(go):
            time.sleep(0.05)
        return 7
    slow = F.udf(held, "long")
    other.append([row.s for row in spark.range(0, 1, 1, 1).select(slow("id").alias("s")).collect()])
thread = threading.Thread(target=beside)
thread.start()
""")
    notebook.ok(f"%tfcluster start ends 1000000 {folder}")
    feeds = notebook.send("%tfcluster train long")
    wait_for("the programs", lambda: len(list(folder.glob("reads-*"))) == 2)
    notebook.manager.interrupt_kernel()
    cell = notebook.finish(feeds)
    assert "the run was stopped; the cluster stays" in cell.error, cell.all
    assert notebook.ok("other").result == "[]"
    go.touch()
    assert notebook.ok("thread.join()\nother").result == "[[7]]"


def works(notebook: Notebook, env: dict[str, str]) -> None:
    """All slots of Spark are free, the next feed delivers each record once, and nothing of either is left."""
    cell = notebook.ok("spark.range(0, 100, 1, 4).selectExpr('sum(id) s').first().s")
    assert cell.result == "4950", cell.all
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train few\ntotal(run)")
    assert cell.result == "(5003, {1}, 5003)", cell.all
    wait_for("the end of the feed's memory", lambda: not memory(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"))
    wait_for("the end of the feed's sockets", lambda: not sockets(env))
