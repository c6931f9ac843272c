"""inference DATA of a Spark DataFrame: a DataFrame of the same session, in order within partitions."""

from __future__ import annotations

import pytest
from conftest import Notebook
from standalone import NEEDS_SPARK

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

CLASSIC = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[4, 2]").getOrCreate()
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
"""
FRAME = """
from pyspark.sql import functions as F
data = spark.range(0, 5003, 1, 5).select(
    "id", F.col("id").cast("float").alias("x"), F.current_date().alias("day"), (F.spark_partition_id()).alias("part"))
data = data.where("part != 3 and (part != 4 or id = 5002)")  # partitions of 1,000 and more, 0 and 1 records
"""
PROGRAM = """
def main_fun(args, ctx):
    import numpy as np
    feed = ctx.get_data_feed()
    while (batch := feed.next_numpy(300)) is not None:
        x = batch["x"]
        pair = np.stack([x, -x], axis=1).reshape(-1, 1, 2)
        feed.results({"prediction": 2 * x, "image": pair, "small": x.astype("u1")})
"""
CHECK = """
rows = out.collect()
print(out.columns, [f.dataType.simpleString() for f in out.schema.fields])
print(len(rows), data.count(), all(r.prediction == 2 * r.id and r.image == [[r.id, -r.id]] for r in rows))
by_part = {}
for r in out.select("id", F.spark_partition_id().alias("p")).collect():
    by_part.setdefault(r.p, []).append(r.id)
print(sorted(map(len, by_part.values())), all(ids == sorted(ids) for ids in by_part.values()))
"""


def check(notebook: Notebook, reserve: str) -> None:
    """Runs inference over FRAME and looks at the value, while the cluster is there and afterwards."""
    notebook.ok(reserve + "\n" + FRAME + PROGRAM)
    notebook.ok("%tfcluster start main_fun")
    notebook.ok("out = %tfcluster inference data --columns x --keep id,day")
    notebook.ok("%tfcluster start main_fun")
    notebook.ok("%tfcluster inference data --columns x --keep id --output found")
    assert notebook.ok("sorted(spark.read.parquet('found').columns)").result == "['id', 'image', 'prediction', 'small']"
    assert notebook.ok("_.__class__.__name__, spark.read.parquet('found').count() == data.count()").result.endswith(
        "True)"
    )
    assert "exists already" in notebook.fails("%tfcluster inference data --columns x --output found").error
    away = notebook.fails("%tfcluster inference data --columns x --output nosuchfs://away/found").error
    assert "--output nosuchfs://away/found: Spark cannot look there: " in away and "No FileSystem for scheme" in away, (
        away
    )
    notebook.ok("%tfcluster shutdown --force")
    cell = notebook.ok(CHECK)
    said = cell.text.splitlines()
    assert said[0] == (
        "['id', 'day', 'prediction', 'image', 'small'] ['bigint', 'date', 'float', 'array<array<float>>', 'smallint']"
    ), cell.all
    assert said[1].split()[0] == said[1].split()[1] and said[1].endswith("True"), cell.all
    assert said[2].startswith("[1, ") and said[2].endswith("True"), cell.all


def test_classic(shared: Notebook) -> None:
    """A session of the notebook's own."""
    shared.ok(CLASSIC)
    check(shared, "%tfcluster reserve --backend spark --workers 2 --no-zygote --framework none")


def test_errors(shared: Notebook) -> None:
    """Errors of the DataFrame and of the program are shown as they are; a task that Spark tries again; no record."""
    shared.ok(CLASSIC + FRAME + PROGRAM)
    shared.ok("%tfcluster reserve --backend spark --workers 2 --no-zygote --framework none")
    shared.ok("%tfcluster start main_fun")
    shared.ok("fails = F.udf(lambda x: 1 / (x - 700), 'double')\nbad = data.select(fails('x').alias('x'))")
    cell = shared.fails("%tfcluster inference bad")
    assert "ZeroDivisionError" in cell.error, cell.all
    shared.ok("""
def once(x):  # the first attempt of its task fails in the middle
    from pyspark import TaskContext
    return x if TaskContext.get().attemptNumber() or x != 1700 else 1 / 0
again = data.select("id", F.udf(once, "double")("x").alias("x"))
""")
    shared.ok("out = %tfcluster inference again --keep id --columns x")
    cell = shared.ok(
        "sorted(r.id for r in out.where('prediction = 2 * id').collect()) == [r.id for r in data.collect()]"
    )
    assert cell.result == "True", cell.all
    shared.ok("%tfcluster start main_fun")
    shared.ok("empty = data.where('id < 0')")
    shared.ok("out = %tfcluster inference empty --columns x --keep id")
    assert shared.ok("out.collect(), out.columns").result == "([], ['id', 'prediction'])"
    shared.ok(PROGRAM.replace("feed.results(", "feed.results(x[1:]) if 1 else ("))
    shared.ok("%tfcluster start main_fun")
    cell = shared.fails("%tfcluster inference data --columns x")
    assert "main_fun gave 299 results for 300 records (worker:" in cell.error, cell.all


def test_connect(notebook: Notebook) -> None:
    """A session over Spark Connect, which the cluster has made: the value is there as long as the cluster is."""
    pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    notebook.ok("c = %tfcluster reserve --backend spark --master local[4] --workers 2 --no-zygote --framework none")
    notebook.ok("spark = c.spark()\n" + FRAME + PROGRAM)
    notebook.ok("%tfcluster start main_fun")
    notebook.ok("out = %tfcluster inference data --columns x --keep id,day")
    said = notebook.ok(CHECK).text.splitlines()
    assert said[1].split()[0] == said[1].split()[1] and said[1].endswith("True"), said
    assert said[2].startswith("[1, ") and said[2].endswith("True"), said
    notebook.ok("spark.stop()\n%tfcluster shutdown")
