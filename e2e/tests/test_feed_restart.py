"""Feeds of runs that are started again, with --max-restarts, after a task was killed in the middle."""

from __future__ import annotations

import os
import pathlib
import random
import signal

import pytest
from conftest import Cell, Notebook, alive, wait_for
from standalone import SESSION, needs_spark
from test_feed import TOTAL
from test_feed_faults import RESERVE, victim

pytestmark = pytest.mark.engines


# The first attempt of worker:1 reads slowly and says where it is; those behind it count what they read.
COUNT = """
def count(args, ctx):
    import collections, os, pathlib, time
    feed = ctx.get_data_feed()
    first = pathlib.Path(os.environ["TFCLUSTER_TEST"], f"first-{ctx.task_index}")
    slowly = not first.exists()
    seen = collections.Counter()
    while not feed.should_stop():
        for record in feed.next_batch(100):
            seen[int(record if not isinstance(record, tuple) else record[0])] += 1
        if slowly:
            first.with_suffix(".new").write_text(str(os.getpid()))
            first.with_suffix(".new").rename(first)
            time.sleep(0.05)
    return dict(seen)
"""
WIDE = "{'x': np.arange(20_003), 'wide': np.zeros((20_003, 1000), dtype=np.float32)}"
AGAIN = "the tasks were restarted: the feed begins again at the first record"


def killed(notebook: Notebook, env: dict[str, str], line: str, *, agent: bool = False, worker: int = 1) -> Cell:
    """Feeds, kills a worker, or an agent, in the middle with kill -9, and returns what the cell shows."""
    feeds = notebook.send(line)
    first = pathlib.Path(env["TFCLUSTER_TEST"], f"first-{worker}")
    wait_for("the worker to read", first.exists)
    pid = victim("agent", env, random.Random(0)) if agent else int(first.read_text())
    os.kill(pid, signal.SIGKILL)
    wait_for("the end of the process", lambda: not alive(pid))
    return notebook.finish(feeds)


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


@pytest.fixture
def env(kernel: Notebook) -> dict[str, str]:
    """The environment of that kernel."""
    return kernel.env


@pytest.mark.parametrize("data", ["np.arange(20_003)", WIDE])
def test_an_array(notebook: Notebook, env: dict[str, str], data: str) -> None:
    """The last attempt reads each record once per epoch; the cell says in one line that the feed began again.

    The records of the first array are all in the programs' hands when worker:1 is killed, those of the other are not.
    """
    notebook.ok(RESERVE)
    notebook.ok(f"import numpy as np\nrecords = {data}\n" + COUNT + TOTAL)
    notebook.ok("%tfcluster start --max-restarts 1 count")
    cell = killed(notebook, env, "run = %tfcluster train records --epochs 3\ntotal(run)")
    assert cell.result == "(20003, {3}, 60009)", cell.all
    assert cell.text.count(AGAIN) == 1 and "restarted 1 of 1" in cell.plain[-1], cell.all
    assert "fed 60,009 of 60,009 records" in cell.plain[-1], cell.all


def test_an_executor(notebook: Notebook, env: dict[str, str]) -> None:
    """An executor is lost: another one takes its place, and the last attempt reads each record once per epoch."""
    notebook.ok(RESERVE)
    notebook.ok(f"import numpy as np\nrecords = {WIDE}\n" + COUNT + TOTAL)
    notebook.ok("%tfcluster start --max-restarts 1 count")
    cell = killed(notebook, env, "run = %tfcluster train records --epochs 2\ntotal(run)", agent=True)
    assert cell.result == "(20003, {2}, 40006)" and cell.text.count(AGAIN) == 1, cell.all


def test_one_worker(notebook: Notebook, env: dict[str, str]) -> None:
    """The only worker is killed: nobody reads until it is started again; --more keeps the feed of that attempt open."""
    notebook.ok(RESERVE.replace("--workers 2", "--workers 1"))
    notebook.ok(f"import numpy as np\nrecords = {WIDE}\n" + COUNT + TOTAL)
    notebook.ok("%tfcluster start --max-restarts 1 count")
    cell = killed(notebook, env, "run = %tfcluster train records --more", worker=0)
    assert "fed 20,003 of 20,003 records" in cell.plain[-1] and cell.text.count(AGAIN) == 1, cell.all
    cell = notebook.ok("run = %tfcluster train records\ntotal(run)")
    assert cell.result == "(20003, {2}, 40006)", cell.all


def test_an_iterator(notebook: Notebook, env: dict[str, str]) -> None:
    """An iterator cannot be read again: the run fails, and says so and what to do."""
    notebook.ok(RESERVE)
    notebook.ok("import numpy as np\nrecords = (np.arange(1000) for _ in range(1000))\n" + COUNT + TOTAL)
    notebook.ok("%tfcluster start --max-restarts 1 count")
    cell = killed(notebook, env, "%tfcluster train records")
    assert cell.status == "error" and "cannot be read from the first record again" in cell.error, cell.all
    assert "train with an array, a table or a DataFrame" in cell.error and AGAIN not in cell.all, cell.all
    notebook.ok("records = np.arange(1003)\n%tfcluster start --max-restarts 1 count")
    cell = notebook.ok("run = %tfcluster train records\ntotal(run)")
    assert cell.result == "(1003, {1}, 1003)", cell.all


def test_detached(notebook: Notebook, env: dict[str, str]) -> None:
    """--detach feeds the next attempt without a cell."""
    notebook.ok(RESERVE)
    notebook.ok(f"import numpy as np\nrecords = {WIDE}\n" + COUNT + TOTAL)
    notebook.ok("%tfcluster start --max-restarts 1 count")
    cell = killed(notebook, env, "%tfcluster train records --detach")
    assert cell.status == "ok", cell.all
    cell = notebook.ok("run = %tfcluster wait\ntotal(run)")
    assert cell.result == "(20003, {1}, 20003)", cell.all


PREDICT = """
def predict(args, ctx):
    import os, pathlib, time
    feed = ctx.get_data_feed()
    first = pathlib.Path(os.environ["TFCLUSTER_TEST"], f"first-{ctx.task_index}")
    slowly = not first.exists()
    for batch in feed.as_iterable(100):
        feed.results(batch * 2)
        if slowly:
            first.with_suffix(".new").write_text(str(os.getpid()))
            first.with_suffix(".new").rename(first)
            time.sleep(0.05)
"""


def test_inference(notebook: Notebook, env: dict[str, str]) -> None:
    """The results are those of the last attempt, one for each record, in the order of the data."""
    notebook.ok(RESERVE)
    notebook.ok("import numpy as np\nrecords = np.arange(20_003)\n" + PREDICT)
    notebook.ok("%tfcluster start --max-restarts 1 predict")
    cell = killed(notebook, env, "twice = %tfcluster inference records\n(twice == records * 2).all(), len(twice)")
    assert cell.result == "(np.True_, 20003)" and cell.text.count(AGAIN) == 1, cell.all


SERVED = """
def served(args, ctx):
    import os, pathlib, time
    attempt = pathlib.Path(os.environ["TFCLUSTER_TEST"], f"{ctx.job_name}-{ctx.task_index}-{os.getpid()}")
    attempt.write_text("")
    if ctx.job_name != "chief":
        import tensorflow as tf
        tf.distribute.Server(
            tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec(), job_name=ctx.job_name,
            task_index=ctx.task_index, protocol="grpc",
        ).join()
    feed, seen = ctx.get_data_feed(), 0
    while not feed.should_stop():
        seen += len(feed.next_batch(100))
        attempt.with_name("first-1").write_text("")
        while len(list(attempt.parent.glob("worker-0-*"))) < 2:
            time.sleep(0.05)
    return seen
"""


def test_a_server(notebook: Notebook, env: dict[str, str]) -> None:
    """With parameter servers a worker that only serves is started again alone: the chief goes on reading."""
    notebook.ok("%tfcluster reserve --backend local --chief --workers 1 --ps 1\nimport numpy as np")
    notebook.ok("records = np.arange(20_003)\n" + SERVED)
    notebook.ok("%tfcluster start --max-restarts 1 served")
    feeds = notebook.send("run = %tfcluster train records\nrun.result")
    folder = pathlib.Path(env["TFCLUSTER_TEST"])
    wait_for("the chief to read", (folder / "first-1").exists)
    wait_for("the worker", lambda: any(folder.glob("worker-0-*")))
    os.kill(int(next(folder.glob("worker-0-*")).name.rpartition("-")[2]), signal.SIGKILL)
    cell = notebook.finish(feeds)
    assert cell.result == "20003" and AGAIN not in cell.all and "only this worker" in cell.text, cell.all


MEAN = """
def evaluate(args, ctx):
    import os, pathlib, time
    first = pathlib.Path(os.environ["TFCLUSTER_TEST"], f"first-{ctx.task_index}")
    slowly, n = not first.exists(), 0
    for batch in ctx.get_data_feed().as_iterable(100):
        n += len(batch)
        if slowly:
            first.with_suffix(".new").write_text(str(os.getpid()))
            first.with_suffix(".new").rename(first)
            time.sleep(0.05)
    return {"records": n, "attempt": 1 if slowly else 2}
"""


def test_evaluate(notebook: Notebook, env: dict[str, str]) -> None:
    """The means are those of the last attempt."""
    notebook.ok(RESERVE)
    notebook.ok("import numpy as np\nrecords = np.arange(20_000)\n" + MEAN)
    notebook.ok("%tfcluster start --max-restarts 1 evaluate")
    cell = killed(notebook, env, "found = %tfcluster evaluate records\ndict(found)")
    assert cell.result == "{'attempt': 2.0, 'records': 10000.0}" and cell.text.count(AGAIN) == 1, cell.all


FIT = """
def main_fun(args, ctx):
    import os, pathlib, time, keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    first = pathlib.Path(os.environ["TFCLUSTER_TEST"], f"first-{ctx.task_index}")
    slowly, steps = not first.exists(), []
    feed = ctx.get_data_feed()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def step(batch, logs):
        steps.append(batch)
        if slowly and len(steps) > 5:
            first.with_suffix(".new").write_text(str(os.getpid()))
            first.with_suffix(".new").rename(first)
            time.sleep(0.05)

    count = keras.callbacks.LambdaCallback(on_train_batch_end=step)
    model.fit(feed.as_dataset(32), epochs=ctx.epochs, verbose=0, callbacks=[count])
    return len(steps), [float(w.sum()) for w in model.get_weights()]
"""


def test_fit(notebook: Notebook, env: dict[str, str]) -> None:
    """Keras' fit under MultiWorkerMirroredStrategy: the workers of the last attempt have equally many batches."""
    notebook.ok("%tfcluster reserve --backend local --workers 2\nimport numpy as np")
    notebook.ok(
        FIT + "x = np.random.default_rng(0).random((5001, 4), dtype=np.float32)\ndata = {'x': x, 'y': x.sum(1)}"
    )
    notebook.ok("%tfcluster start --max-restarts 1 main_fun")
    line = "run = %tfcluster train data --label y --epochs 2\n"
    line += "first, second = run.results.values()\nfirst == second, first[0]"
    cell = killed(notebook, env, line)
    assert cell.result == "(True, 316)" and cell.text.count(AGAIN) == 1, cell.all
    assert "fed 10,000 of 10,002 records" in cell.all and "2 records left out" in cell.all, cell.all


LATE = """
def late(args, ctx):
    import os, pathlib, sys, time
    feed = ctx.get_data_feed()
    for batch in feed.as_iterable(100):
        feed.results((batch["id"] if isinstance(batch, dict) else batch) * 2)
    failed = pathlib.Path(os.environ["TFCLUSTER_TEST"], "failed")
    if ctx.task_index == 1 and not failed.exists():
        while not any(pathlib.Path(args[0]).parent.glob(args[0].rpartition("/")[2] + args[1])):
            time.sleep(0.05)
        failed.write_text("")
        raise ValueError("too late")
"""


def test_behind_the_last_result(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """A program that fails when every record has a result is fed again, and --output is written again."""
    notebook.ok(RESERVE)
    notebook.ok("import numpy as np, pandas as pd\nrecords = pd.DataFrame({'id': range(2003)})\n" + LATE)
    notebook.ok(f"%tfcluster start --max-restarts 1 late {tmp_path}/out ''")
    cell = notebook.ok(f"path = %tfcluster inference records --output {tmp_path}/out")
    assert cell.text.count(AGAIN) == 1, cell.all
    cell = notebook.ok("found = pd.read_parquet(path)\n(found.prediction == found.id * 2).all(), len(found)")
    assert cell.result == "(np.True_, 2003)", cell.all


@needs_spark
def test_a_dataframe(notebook: Notebook, env: dict[str, str]) -> None:
    """The last attempt reads each row once per epoch; no job of the first one is left."""
    notebook.ok(SESSION)
    notebook.ok(RESERVE)
    notebook.ok(COUNT + TOTAL + "from pyspark.sql import functions as F\ndf = spark.range(20_003).repartition(5)")
    notebook.ok("df = df.withColumn('wide', F.array_repeat(F.lit(0).cast('float'), 1000))  # more than fits the memory")
    notebook.ok("%tfcluster start --max-restarts 1 count")
    cell = killed(notebook, env, "run = %tfcluster train df --epochs 2\ntotal(run)")
    assert cell.result == "(20003, {2}, 40006)" and cell.text.count(AGAIN) == 1, cell.all
    cell = notebook.ok("list(spark.sparkContext.statusTracker().getActiveJobsIds())")
    assert cell.result == "[]", cell.all


@needs_spark
def test_behind_the_last_result_of_spark(notebook: Notebook, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Results that were written before the restart are written again."""
    notebook.ok(SESSION)
    notebook.ok(RESERVE)
    notebook.ok(LATE + "df = spark.range(2003).repartition(3)")
    notebook.ok(f"%tfcluster start --max-restarts 1 late {tmp_path}/out /_SUCCESS")
    cell = notebook.ok(f"found = %tfcluster inference df --output {tmp_path}/out")
    assert cell.text.count(AGAIN) == 1, cell.all
    cell = notebook.ok("found.where('prediction = id * 2').count(), found.count()")
    assert cell.result == "(2003, 2003)", cell.all
