"""train DATA and evaluate DATA: the notebook's arrays and Spark's DataFrames in the tasks, each record once."""

from __future__ import annotations

import pytest
from conftest import Notebook

COUNT = """
def count(args, ctx):
    import collections
    feed = ctx.get_data_feed()
    seen = collections.Counter()
    while not feed.should_stop():
        for record in feed.next_batch(100):
            seen[int(record if not isinstance(record, tuple) else record[0])] += 1
    return dict(seen)
"""
TOTAL = """
import collections
def total(run):
    seen = collections.Counter()
    for part in run.results.values():
        for record, n in part.items():
            seen[int(record)] += n
    return len(seen), set(seen.values()), sum(seen.values())
"""


def test_records_of_an_array(notebook: Notebook) -> None:
    """Each record of an array reaches one of two workers, once per epoch."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok(COUNT + TOTAL)
    notebook.ok("records = np.arange(100_003)")
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train records --epochs 3\ntotal(run)", timeout=60)
    assert cell.result == "(100003, {3}, 300009)", cell.all


def test_large_records(notebook: Notebook) -> None:
    """A program that waits is given what comes: several slots' worth of partitions, several times."""
    notebook.ok("%tfcluster reserve --backend local --workers 1 --no-zygote --framework none\nimport numpy as np")
    notebook.ok("""
def adds(args, ctx):
    feed, records, total = ctx.get_data_feed(), 0, 0.0
    while (batch := feed.next_numpy(4096)) is not None:
        records, total = records + len(batch), total + float(batch.sum(dtype="float64"))
    return records, total
""")
    notebook.ok("x = np.ones((50_000, 784), dtype=np.float32)\n%tfcluster start adds")
    cell = notebook.ok("run = %tfcluster train x --epochs 2\nrun.result", timeout=60)
    assert cell.result == "(100000, 78400000.0)", cell.all


def test_what_is_waited_for(notebook: Notebook) -> None:
    """A run that waits for data says so; train says what it waits for, and why nothing can be fed."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok(COUNT + TOTAL + "records = np.arange(1000)")
    cell = notebook.fails("%tfcluster train records")
    assert "no run takes data: no program has been started" in cell.error, cell.all
    cell = notebook.ok("%tfcluster start --wait count")
    assert "waiting for data: %tfcluster train DATA" in cell.all, cell.all
    assert "waiting for data" in notebook.ok("%tfcluster status").all
    cell = notebook.fails("%tfcluster train object()")
    assert "there is no name" in cell.error or "no name" in cell.error, cell.all
    notebook.ok("word = 'text'")
    cell = notebook.fails("%tfcluster train word")
    assert "DATA is a str: a Spark or pandas DataFrame" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train records --more\nrun.state")
    assert cell.result == "'running'" and "fed 1,000" in cell.all, cell.all
    cell = notebook.ok("run = %tfcluster train records\ntotal(run)")
    assert cell.result == "(1000, {2}, 2000)", cell.all
    cell = notebook.fails("%tfcluster train records")
    assert "no run takes data: run 1 has ended: it finished" in cell.error, cell.all


def test_a_program_that_fails(notebook: Notebook) -> None:
    """The cell shows the program's own error, at once, while the source has more records than fit."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok("""
def fails(args, ctx):
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_numpy(1000)
        if ctx.worker_num == 1:
            raise ValueError("enough")
""")
    notebook.ok("records = np.zeros((1_000_000, 100), dtype=np.float32)")
    notebook.ok("%tfcluster start fails")
    cell = notebook.fails("%tfcluster train records", timeout=60)
    assert "worker:1 on" in cell.error and "ValueError: enough" in cell.error, cell.all
    notebook.ok(COUNT + TOTAL)
    notebook.ok("few = np.arange(10)\n%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train few\ntotal(run)")
    assert cell.result == "(10, {1}, 10)", cell.all


def test_a_program_that_leaves(notebook: Notebook) -> None:
    """A worker that reads no more leaves the rest to the others; when all have left, the source is stopped."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok("""
def leaves(args, ctx):
    feed = ctx.get_data_feed()
    batch = feed.next_numpy(1000)
    feed.terminate()
    return len(batch)
""")
    notebook.ok("records = np.zeros((1_000_000, 100), dtype=np.float32)")
    notebook.ok("%tfcluster start leaves")
    cell = notebook.ok("run = %tfcluster train records\nrun.results", timeout=60)
    assert cell.result == "{'worker:0': 1000, 'worker:1': 1000}" and "not read" in cell.all, cell.all


@pytest.mark.parametrize("data", ["{'x': np.arange(7), 'y': np.arange(7)}", "pd.DataFrame({'x': range(7), 'y': 1.5})"])
def test_records_of_columns(notebook: Notebook, data: str) -> None:
    """A record of columns is a tuple in their order."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none")
    notebook.ok("import numpy as np, pandas as pd\n" + COUNT + TOTAL + f"data = {data}")
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train data\ntotal(run)", timeout=60)
    assert cell.result == "(7, {1}, 7)", cell.all


EVALUATE = """
def main_fun(args, ctx):
    import keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = ctx.get_data_feed()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile("sgd", "mse", metrics=["mae"])
    model.evaluate(feed.as_dataset(32), verbose=0)
"""


def test_evaluation_under_a_strategy(notebook: Notebook) -> None:
    """evaluate leaves no record out, whatever their number is; its value is what model.evaluate found."""
    notebook.ok("%tfcluster reserve --backend local --workers 2\nimport numpy as np")
    notebook.ok(EVALUATE + "x = np.random.default_rng(0).random((5001, 4), dtype=np.float32)")
    for n in (5001, 129):  # 129: the batches of one worker are full, the other has one record more
        notebook.ok(f"data = {{'x': x[:{n}], 'y': np.where(np.arange({n}) == {n} - 1, 1000, 0) + x[:{n}].sum(1)}}")
        notebook.ok("%tfcluster start main_fun")
        cell = notebook.ok(
            "found = %tfcluster evaluate data --label y\nsorted(found), round(found['mae'], 3)", timeout=120
        )
        assert cell.result == f"(['loss', 'mae'], {round(1000 / n, 3)})", cell.all


FIT = """
def main_fun(args, ctx):
    import keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = ctx.get_data_feed()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    model.fit(feed.as_dataset(32), epochs=ctx.epochs, verbose=0, callbacks=[count])
    return len(steps), [float(w.sum()) for w in model.get_weights()]
"""


def test_fit_under_a_strategy(notebook: Notebook) -> None:
    """fit on a feed: both workers have equally many batches and the same weights, and what is left out is said."""
    notebook.ok("%tfcluster reserve --backend local --workers 2\nimport numpy as np")
    notebook.ok(
        FIT + "x = np.random.default_rng(0).random((5001, 4), dtype=np.float32)\ndata = {'x': x, 'y': x.sum(1)}"
    )
    notebook.ok("%tfcluster start main_fun")
    cell = notebook.ok(
        "run = %tfcluster train data --label y --epochs 2\n"
        "first, second = run.results.values()\nfirst == second, first[0]",
        timeout=120,
    )
    assert cell.result == "(True, 316)", cell.all  # of 16 records: half of a global batch
    assert "fed 10,000 of 10,002 records" in cell.all and "2 records left out" in cell.all, cell.all
    assert "ran out of data" not in cell.all, cell.all
