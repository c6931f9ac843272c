"""train DATA and evaluate DATA of Spark DataFrames, on Spark that runs on this machine alone."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest
from conftest import Notebook
from test_feed import COUNT, TOTAL
from test_spark import SESSION, env  # noqa: F401  a fixture

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="missing: pyspark"),
    pytest.mark.skipif(not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="missing: Java"),
]

EVALUATE = """
def evaluate(args, ctx):
    feed, total, n = ctx.get_data_feed(), 0.0, 0
    assert ctx.mode == "evaluate"
    for x, y in feed.as_iterable(100):
        total, n = total + float(y.sum()), n + len(y)
    return {"mean": total / n}
"""


def test_dataframe(notebook: Notebook) -> None:
    """Each row of a DataFrame with uneven partitions reaches one worker, once per epoch; errors do not end the run."""
    notebook.ok(SESSION)
    notebook.ok("%tfcluster reserve --backend spark --workers 2 --no-zygote --framework none")
    notebook.ok(COUNT + TOTAL + EVALUATE)
    notebook.ok("%tfcluster start count")
    cell = notebook.fails("%tfcluster train df")
    assert "the notebook has no name df" in cell.error, cell.all
    notebook.ok(
        "from pyspark.sql import functions as F\n"
        "df = spark.range(10_003).withColumn('x', F.array(*[F.col('id').cast('float')] * 3)).repartition(5)\n"
        "bad = df.withColumn('d', F.col('id').cast('decimal(10,2)'))\n"
        "wrong = df.withColumn('u', F.udf(lambda i: 1 // (i - 5000), 'long')('id'))"
    )
    cell = notebook.fails("%tfcluster train bad")
    assert "column 'd' is decimal(10,2): cast it to double" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train df --epochs 2\ntotal(run)", timeout=120)
    assert cell.result == "(10003, {2}, 20006)", cell.all
    notebook.ok("%tfcluster start evaluate")
    cell = notebook.ok("found = %tfcluster evaluate df --columns x --label id\ndict(found)", timeout=120)
    assert cell.result == "{'mean': 5001.0}", cell.all


def test_error_in_a_dataframe(notebook: Notebook) -> None:
    """An error of the user's DataFrame is shown as Python's own; the run goes on with the next train."""
    notebook.ok(SESSION)
    notebook.ok("%tfcluster reserve --backend spark --workers 2 --no-zygote --framework none")
    notebook.ok(COUNT + TOTAL)
    notebook.ok(
        "from pyspark.sql import functions as F\n"
        "df = spark.range(1000)\n"
        "wrong = df.withColumn('u', F.udf(lambda i: 1 // (i - 700), 'long')('id'))"
    )
    notebook.ok("%tfcluster start count")
    cell = notebook.fails("%tfcluster train wrong")
    assert "ZeroDivisionError" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train df\ntotal(run)[0]", timeout=120)
    assert cell.result == "1000", cell.all
