"""What is fed of a classic session of Spark beside DataFrames, and what becomes of its jobs when a feed ends early."""

from __future__ import annotations

import pathlib

import pytest
from conftest import Notebook, wait_for, written
from standalone import NEEDS_SPARK
from test_feed import COUNT, TOTAL
from test_feed_cases import ENDS, SESSION, SPARK
from test_feed_spark import EVALUATE

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

CLASSIC = (
    SESSION.replace("local[6]", "local[6, 2]")
    + """
active = spark.sparkContext.statusTracker().getActiveJobsIds
busy = {"until": 0.0}
def watch():
    while True:
        if active():
            busy["until"] = time.time()
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
numbers = spark.sparkContext.parallelize(range(10_003), 7)
long = spark.range(0, 10**8, 1, 12)  # a task that nobody stops ends before the test gives up
"""
)
PROMPT = 20.0  # seconds until a job has ended; 0.5 are usual
ARRAYS = """
def arrays(args, ctx):
    feed, records, total = ctx.get_data_feed(), 0, 0.0
    while (batch := feed.next_numpy(1000)) is not None:
        assert batch.shape[1:] == (2, 3) and batch.dtype == "float32", (batch.shape, batch.dtype)
        records, total = records + len(batch), total + float(batch[:, 1, 2].sum(dtype="float64"))
    return records, total
"""
FAILS = """
def fails(args, ctx):
    import pathlib, time
    feed = ctx.get_data_feed()
    while feed.next_numpy(1000) is not None:
        if ctx.task_index == 1:
            time.sleep(1)  # in which the producers fill the slots; the test holds for any time
            pathlib.Path(args[0], "failed").write_text(str(time.time()))
            raise ValueError("enough")
        time.sleep(1)
"""
SLOWER = """
def slower(args, ctx):
    import sys, time
    feed, n, total = ctx.get_data_feed(), 0, 0
    while not feed.should_stop():
        batch = feed.next_batch(10)
        n, total = n + len(batch), total + sum(r[0] for r in batch)
        time.sleep(0.05 * ctx.task_index)
    print("read", n, file=sys.stderr)
    return {"mean": total / max(n, 1)}
"""


def test_rdds_and_ends(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """What is fed of a classic session beside DataFrames, and what becomes of its jobs."""
    notebook.ok(CLASSIC + COUNT + TOTAL + EVALUATE + ARRAYS + ENDS + FAILS + SLOWER)
    notebook.ok(SPARK)
    rdds(notebook)
    stopped_sources(notebook, tmp_path)
    interrupted(notebook, tmp_path)
    unequal_workers(notebook)


def rdds(notebook: Notebook) -> None:
    """A2, E2, E4: RDDs of scalars, tuples, dicts and arrays; a task that fails in the middle; errors."""
    for expression in ("numbers", "numbers.map(lambda i: (i, [0.5] * 3, 'a'))"):
        notebook.ok(f"data = {expression}\n%tfcluster start count")
        cell = notebook.ok("run = %tfcluster train data --epochs 2\ntotal(run)")
        assert cell.result == "(10003, {2}, 20006)", cell.all
    notebook.ok("""
def again(split, records):  # the first attempt of each task fails in the middle
    from pyspark import TaskContext
    for n, record in enumerate(records):
        if n == 1200 and not TaskContext.get().attemptNumber():
            raise RuntimeError("once more")
        yield record
retried = numbers.mapPartitionsWithIndex(again)
def shuffled(split, records):  # the second attempt has the same first record, and the others in another order
    from pyspark import TaskContext
    if not TaskContext.get().attemptNumber():
        yield from again(split, records)
    first, *others = records
    yield from [first, *reversed(others)]
""")
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train retried\ntotal(run)")
    assert cell.result == "(10003, {1}, 10003)", cell.all
    notebook.ok(
        "dicts = numbers.map(lambda i: {'id': i, 'x': [float(i)] * 4, 'when': 'now'})\n%tfcluster start evaluate"
    )
    cell = notebook.ok("found = %tfcluster evaluate dicts --columns x --label id\ndict(found) == {'mean': 5001}")
    assert cell.result == "True", cell.all
    notebook.ok("import numpy as np\nimages = numbers.map(lambda i: np.full((2, 3), i, 'f4'))\n%tfcluster start arrays")
    cell = notebook.ok("run = %tfcluster train images\nnp.sum(list(run.results.values()), axis=0).tolist()")
    assert cell.result == "[10003.0, 50025003.0]", cell.all
    notebook.ok("%tfcluster start count")
    for expression, says in {
        "numbers.mapPartitionsWithIndex(shuffled)": "computed again in another order: 1,000 of its records",
        "numbers.map(lambda i: 1 // (i - 5000))": "ZeroDivisionError",
        "numbers.map(lambda i: i if i < 5000 else None)": "NULL",
        "numbers.map(lambda i: (i,) * (1 + (i == 5000)))": "is a tuple of length 2, but the first record of DATA is",
        "numbers.map(lambda i: i if i < 5000 else 'text')": "in the first record of DATA it is int64",
        "numbers.map(lambda i: object)": "its first record contains a value of type type",
    }.items():
        notebook.ok(f"data = {expression}")
        cell = notebook.fails("%tfcluster train data")
        assert says in cell.error and "Py4J" not in cell.error, cell.all
    assert "make it a DataFrame" in notebook.fails("%tfcluster inference numbers").error
    cell = notebook.ok("run = %tfcluster train numbers\ntotal(run)[0]")  # and what the others had delivered
    assert cell.result == "10004", cell.all


def stopped_sources(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """C4, D4, E1: --steps, programs that leave or fail: the job of Spark ends soon after the last record was read."""
    for words, options in (("1000000", "--steps 5"), ("5", "")):
        notebook.ok(f"%tfcluster start ends {words}")
        cell = notebook.ok(
            f"run = %tfcluster train long {options}\nwhile active(): time.sleep(0.02)\n"
            "busy['until'] - max(run.results.values())"
        )
        seconds = float(cell.result)
        assert seconds < PROMPT, cell.all
        assert "not read" in cell.all, cell.all
        print(f"the job ended {seconds:.2f} s after the last record was read ({options or 'break'})")
    notebook.ok(f"%tfcluster start fails {tmp_path}")
    cell = notebook.fails("%tfcluster train long")
    assert cell.ename == "RunFailed" and "ValueError: enough" in cell.error and "Py4J" not in cell.error, cell.all
    cell = notebook.ok("while active(): time.sleep(0.02)\nbusy['until']")
    seconds = float(cell.result) - float(written(tmp_path / "failed"))
    assert seconds < PROMPT, cell.all
    print(f"the job ended {seconds:.2f} s after a program failed")


def interrupted(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """E5: an interrupt stops the run and its job; session, cluster and another job of the session stay."""
    go = tmp_path / "go"
    notebook.ok(f"go = {str(go)!r}")
    notebook.ok("""
import os
other = []
def beside():
    spark.sparkContext.setJobDescription("the user's own")
    def held(_):
        while not os.path.exists(go):
            time.sleep(0.05)
        return 7
    other.append(spark.sparkContext.parallelize([1], 1).map(held).collect())
thread = threading.Thread(target=beside)
thread.start()
""")
    notebook.ok(f"%tfcluster start ends 1000000 {tmp_path}")
    feeds = notebook.send("%tfcluster train long")
    wait_for("the programs", lambda: len(list(tmp_path.glob("reads-*"))) == 2)
    notebook.manager.interrupt_kernel()
    cell = notebook.finish(feeds)
    assert "the run was stopped; the cluster stays" in cell.error, cell.all
    assert notebook.ok("other").result == "[]"
    go.touch()
    cell = notebook.ok("""
thread.join()
deadline = time.time() + 100
while active() and time.time() < deadline:  # Spark's list of jobs follows its events with a delay
    time.sleep(0.02)
other, active(), spark.range(7).count()
""")
    assert cell.result == "([[7]], [], 7)", cell.all
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train numbers\ntotal(run)")
    assert cell.result == "(10003, {1}, 10003)", cell.all


def unequal_workers(notebook: Notebook) -> None:
    """F1: the mean over workers that had unequal numbers of records is that of the records."""
    notebook.ok("frame = spark.range(0, 1010, 1, 3)\n%tfcluster start slower")
    cell = notebook.ok("found = %tfcluster evaluate frame\ndict(found)")
    assert cell.result == "{'mean': 504.5}", cell.all
    read = [int(line.split()[-1]) for line in cell.stderr.splitlines() if "] read " in line]
    assert sum(read) == 1010 and abs(read[0] - read[1]) > 100, read
