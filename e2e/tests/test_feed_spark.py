"""train DATA and evaluate DATA of Spark DataFrames, on Spark that runs on this machine alone."""

from __future__ import annotations

from conftest import Notebook
from standalone import NEEDS_SPARK, SESSION
from test_feed import COUNT, TOTAL

pytestmark = NEEDS_SPARK

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
    cell = notebook.ok("run = %tfcluster train df --epochs 2\ntotal(run)")
    assert cell.result == "(10003, {2}, 20006)", cell.all
    notebook.ok("%tfcluster start evaluate")
    cell = notebook.ok("found = %tfcluster evaluate df --columns x --label id\ndict(found)")
    assert cell.result == "{'mean': 5001.0}", cell.all
    notebook.ok("%tfcluster start count")
    cell = notebook.fails("%tfcluster train wrong")
    assert "ZeroDivisionError" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train df\ntotal(run)[0]")  # and what the others had delivered
    assert cell.result == "10003", cell.all
