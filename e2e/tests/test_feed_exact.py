"""Each record that trains is as it was fed: in the training step of fit, and through every library of the notebook."""

from __future__ import annotations

import itertools
import os
import random

import pytest
from conftest import ROOT, Notebook

# Each record has a number, from which its other values follow. TensorFlow writes into the memory of a batch that it
# takes for its own: a record that is given again, or moved, would have other values then, and where the memory is
# read-only the process ends by SIGSEGV (tfcluster/feed_dataset.py).
FIT = """
import numpy as np
def table(begin, end):
    n = np.arange(begin, end, dtype="float32")
    return {"x": np.stack([n, n + 1, 2 * n, n % 7], axis=1), "y": n % 2}
def parts(*sizes):
    ends = np.cumsum([0, *sizes])
    return iter([table(a, b) for a, b in zip(ends, ends[1:])])
def exact(args, ctx):
    import keras, tensorflow as tf
    several = ctx.num_workers > 1
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
    feed = ctx.get_data_feed()
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, activation="sigmoid")
        def call(self, x):
            return self.dense(x / 10_000)
        def train_step(self, data):
            x, y = data[0], data[1]
            n = x[:, 0]
            follows = tf.stack([n, n + 1, 2 * n, n % 7], axis=1)
            with tf.control_dependencies([tf.debugging.assert_equal(x, follows), tf.debugging.assert_equal(y, n % 2)]):
                return super().train_step(data)
    with strategy.scope():
        model = Model()
        model.compile("sgd", "mse")
    model.fit(feed.as_dataset(int(args[0])), epochs=ctx.epochs, verbose=0)
    return feed.records
"""
# Workers, the data, records, the batch, and options of train.
PAIRS = [
    (3, "parts(1000, 10)", 1010, 64, ""),
    (3, "parts(1000, 10, 0)", 1010, 66, "--uneven pad"),
    (3, "table(0, 1010)", 1010, 63, "--epochs 2"),
    (2, "parts(1, 0, 999, 1)", 1001, 64, "--uneven pad"),
    (2, "table(0, 777)", 777, 50, "--epochs 3 --uneven pad"),
    (2, "parts(7, 3)", 10, 64, ""),
    (4, "parts(500, 1, 20, 4)", 525, 60, "--uneven pad"),
    (4, "table(0, 402)", 402, 64, "--epochs 2 --drop-remainder"),
    (5, "parts(0, 300, 2)", 302, 33, ""),
    (5, "table(0, 97)", 97, 20, "--epochs 2 --uneven pad"),
    (1, "parts(1000, 10)", 1010, 64, "--uneven pad"),
    (1, "table(0, 130)", 130, 64, "--epochs 3"),
]


def fits(notebook: Notebook, pairs: list[tuple[int, str, int, int, str]]) -> None:
    """Train with each pair; the program fails where a record has other values."""
    notebook.ok(FIT)
    for workers, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        notebook.ok(f"%tfcluster reserve --workers {workers}")
        for _, data, records, batch, options in group:
            notebook.ok(f"%tfcluster start exact {batch}\ndata = {data}")
            cell = notebook.ok(f"run = %tfcluster train data --label y {options}\nsum(run.results.values())")
            epochs = int(options.split()[1]) if "--epochs" in options else 1
            left = 0 if "pad" in options else epochs * (records % workers)
            assert int(cell.result) == epochs * records - left, (data, batch, options, cell.all)
        notebook.ok("%tfcluster shutdown")


def test_uneven_parts(notebook: Notebook) -> None:
    """The two that ended in SIGSEGV when batches were lent to TensorFlow."""
    fits(notebook, PAIRS[:2])


@pytest.mark.engines
def test_workers_and_batches(notebook: Notebook) -> None:
    """Workers 1 to 5, uneven, empty and tiny parts, batches that do not divide, drop and pad, one to three epochs."""
    fits(notebook, PAIRS[2:])


KEPT = """
import sys
sys.path.insert(0, {folder!r})
import tables
def kept(args, ctx):
    import pickle
    feed, parts = ctx.get_data_feed(), []
    while (batch := feed.next_numpy(37)) is not None:
        parts.append(batch if isinstance(batch, dict) else {{"": batch}})
    pickle.dump(parts, open(args[0], "wb"))
def differs(case, file):
    import pickle, numpy as np
    parts = pickle.load(open(file, "rb"))
    if not parts:
        return [name for name, values in case.columns.items() if len(values)]
    return [name for name, values in case.columns.items()
            if not tables.equal(np.concatenate([part[name] for part in parts]), values)]
"""


@pytest.mark.engines
def test_tables_at_random(notebook: Notebook) -> None:
    """40 tables of cluster/python/tests/tables.py, end to end: equal bit for bit, or refused."""
    notebook.ok(KEPT.format(folder=str(ROOT / "cluster" / "python" / "tests")))
    notebook.ok("%tfcluster reserve --workers 1 --framework none")
    file = f"{notebook.cwd}/kept"
    first = random.Random(int(os.environ.get("TFCLUSTER_SEED", "40"))).randrange(10**9)
    refused = 0
    for seed in range(first, first + 40):
        notebook.ok(f"case = tables.case({seed})\nvalue = case.value\n%tfcluster start kept {file}")
        cell = notebook.finish(notebook.send("%tfcluster train value"))
        spoilt = notebook.ok("case.spoilt is not None").result == "True"
        assert (cell.status == "error") == spoilt, f"seed {seed}: {cell.all}"
        refused += spoilt
        if spoilt:  # the run waits for another table
            notebook.ok("%tfcluster stop --now")
        else:
            cell = notebook.ok(f"differs(case, {file!r})")
            assert cell.result == "[]", f"seed {seed}: {cell.all}"
    assert refused > 2
