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


@pytest.mark.parametrize("data", ["{'x': np.arange(7), 'y': np.arange(7)}", "pd.DataFrame({'x': range(7), 'y': 1.5})"])
def test_records_of_columns(notebook: Notebook, data: str) -> None:
    """A record of columns is a tuple in their order."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none")
    notebook.ok("import numpy as np, pandas as pd\n" + COUNT + TOTAL + f"data = {data}")
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train data\ntotal(run)", timeout=60)
    assert cell.result == "(7, {1}, 7)", cell.all


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
        "run = %tfcluster train data --label y --epochs 2\nfirst, second = run.results.values()\nfirst == second, first[0]",
        timeout=120,
    )
    assert cell.result == "(True, 316)", cell.all  # of 16 records: half of a global batch
    assert "fed 10,000 of 10,002 records" in cell.all and "2 records left out" in cell.all, cell.all
