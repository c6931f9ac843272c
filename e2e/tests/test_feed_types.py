"""B1 to B4: columns of Spark's DataFrames as arrays and tensors, and what is refused; classic and Spark Connect."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest
from conftest import Notebook
from standalone import NEEDS_SPARK, SESSION
from test_feed import COUNT, TOTAL

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

SESSIONS = {
    "classic": SESSION,
    "connect": "from pyspark.sql import SparkSession\nspark = SparkSession.builder.remote('local[2]').getOrCreate()\n",
}
FRAME = """
from pyspark.sql import functions as F
i = F.col("id")
df = spark.range(0, 100, 1, 4).select(
    (i % 2 == 0).alias("flag"), i.cast("tinyint").alias("tiny"), i.cast("smallint").alias("small"),
    i.cast("int").alias("whole"), i, i.cast("float").alias("real"), i.cast("double").alias("double"),
    F.array(i.cast("float"), -i.cast("float"), F.lit(1).cast("float")).alias("vector"),
    F.array(F.array(i, i + 1), F.array(i + 2, i + 3)).alias("matrix"),
    F.concat(F.lit("n°"), i.cast("string")).alias("text"),
    F.encode(i.cast("string"), "utf-8").alias("raw"),
    F.unhex(F.repeat(F.lit("0000803f"), 6)).alias("image"),
)
"""
# Without values: the type and shape of each column, and whether every row has the values of its id.
ARRAYS = """
def arrays(args, ctx):
    import numpy as np
    feed, types, rows, right = ctx.get_data_feed(), {}, 0, True
    while (batch := feed.next_numpy(7)) is not None:
        types = {name: (v.dtype.name, v.shape[1:]) for name, v in batch.items()}
        n = batch["id"]
        rows += len(n)
        if "text" in batch:
            wanted = {
                "flag": n % 2 == 0, "vector": np.stack([n, -n, n * 0 + 1], 1),
                "matrix": n[:, None, None] + [[0, 1], [2, 3]],
                "text": np.array([f"n°{k}" for k in n]), "raw": np.array([str(k).encode() for k in n], dtype=object),
                "image": np.ones((len(n), 2, 3)),
            }
        else:
            wanted = {}
        right = right and all((v == wanted.get(name, n)).all() for name, v in batch.items())
    return types, rows, bool(right)
"""
TENSORS = """
def tensors(args, ctx):
    import tensorflow as tf
    feed = ctx.get_data_feed()
    said = tf.nest.map_structure(lambda t: (t.dtype.name, tuple(t.shape)), feed.as_dataset(8).element_spec)
    feed.terminate()
    return said
"""
MAPPED = """
def mapped(args, ctx):
    feed, total, names = ctx.get_data_feed(input_mapping={"vector": "x", "id": "number"}), 0, []
    while not feed.should_stop():
        batch = feed.next_batch(13)
        names = list(batch)
        total += sum(batch["number"]) + sum(float(x[0]) for x in batch["x"])
    return names, total
"""
TYPES = {
    "flag": ("bool", ()), "tiny": ("int8", ()), "small": ("int16", ()), "whole": ("int32", ()), "id": ("int64", ()),
    "real": ("float32", ()), "double": ("float64", ()), "vector": ("float32", (3,)), "matrix": ("int64", (2, 2)),
    "text": ("object", ()), "raw": ("object", ()), "image": ("float32", (2, 3)),
}  # fmt: skip
REFUSED = {
    "cast(id as decimal(10,2)) d": "column 'd' is decimal(10,2): cast it to double",
    "current_date() d": "column 'd' is date: cast it to int (unix_date) or string",
    "current_timestamp() d": "column 'd' is timestamp: cast it to long (unix_micros) or string",
    "map('a', id) d": "column 'd' is map<string,bigint>: select the values that are needed as columns",
    "struct(id) d": "column 'd' is struct<id:bigint>: select its fields as columns (d.*)",
    "array(cast(id as string)) d": "column 'd' is array<string>: cast it to a number or string",
}
# Rows of a partition are counted from 0: of 100 rows in 4 partitions, id 57 is row 7 of partition 2.
WRONG = {
    "if(id = 57, null, id) d": "column 'd', partition 2, row 7: NULL; fill or drop it (fillna, dropna)",
    "array_repeat(1.0f, if(id = 57, 3, 2)) d": "column 'd', partition 2, row 7: an array of 3 values, 2 in the rows",
    "array(id, if(id = 57, null, id)) d": "column 'd', partition 2, row 0: NULL",
}


@pytest.fixture(scope="module", params=list(SESSIONS))
def spark(prefix: pathlib.Path, module_env: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Notebook]:
    """A notebook with a session, and a cluster with one worker, for all tests."""
    if request.param == "connect":
        pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    notebook = Notebook(prefix, module_env, pathlib.Path(module_env["TFCLUSTER_TEST"]))
    try:
        notebook.ok(SESSIONS[request.param] + FRAME)
        backend = "spark" if request.param == "classic" else "local"
        notebook.ok(f"%tfcluster reserve --backend {backend} --workers 1 --no-zygote --framework none")
        yield notebook
    finally:
        notebook.close()


def result(spark: Notebook, line: str) -> object:
    """What the program returns that is fed."""
    cell = spark.ok(f"run = %tfcluster {line}\nrun.result")
    return ast.literal_eval(cell.result)


def test_columns(spark: Notebook) -> None:
    """B1, B2, B4: every type that can be fed, by all ways to read; names in the DataFrame's order; a label apart."""
    spark.ok(ARRAYS + TENSORS + MAPPED)
    image = "--binary image:float32[2,3]"
    spark.ok("%tfcluster start arrays")
    types, rows, right = result(spark, f"train df {image}")
    assert list(types.items()) == list(TYPES.items()) and rows == 100 and right
    spark.ok("%tfcluster start arrays")
    types, rows, right = result(spark, "train df --columns double,id --columns real --cast float32")
    assert types == {"double": ("float32", ()), "id": ("int64", ()), "real": ("float32", ())} and rows == 100 and right
    spark.ok("%tfcluster start tensors")
    features, label = result(spark, f"train df --label id {image}")
    assert label == ("int64", (None,))
    assert features == {
        name: (dtype.replace("object", "string"), (None, *shape))
        for name, (dtype, shape) in TYPES.items()
        if name != "id"
    }
    spark.ok("%tfcluster start tensors")
    assert result(spark, "train df --columns vector --label id") == (("float32", (None, 3)), ("int64", (None,)))
    spark.ok("%tfcluster start mapped")
    assert result(spark, "train df --columns vector,id") == (["number", "x"], 2 * sum(range(100)))


def test_what_cannot_be_fed(spark: Notebook) -> None:
    """B2, B3: a type is refused before a record is read, a value with its partition and row; the run goes on."""
    spark.ok(COUNT + TOTAL + "%tfcluster start count")
    for column, says in REFUSED.items():
        spark.ok(f"bad = spark.range(10).selectExpr('id', {column!r})")
        cell = spark.fails("%tfcluster train bad")
        assert says in cell.error and cell.error.count("\n") == 1, cell.all
    spark.ok("from pyspark.ml.functions import array_to_vector\nbad = df.select(array_to_vector('vector').alias('v'))")
    cell = spark.fails("%tfcluster train bad")
    assert "make it an array (pyspark.ml.functions.vector_to_array)" in cell.error, cell.all
    cell = spark.fails("%tfcluster train df --columns id,none")
    assert "--columns none: there is no such column; choose from flag, tiny" in cell.error, cell.all
    for column, says in WRONG.items():
        spark.ok(f"bad = spark.range(0, 100, 1, 4).selectExpr('id', {column!r})")
        cell = spark.fails("%tfcluster train bad")
        assert says in cell.error, cell.all
    spark.ok("short = spark.range(0, 100, 1, 4).selectExpr('id', 'unhex(if(id = 57, \"00\", \"0000\")) d')")
    cell = spark.fails("%tfcluster train short --binary d:uint8[2]")
    assert "column 'd', partition 2, row 7: 1 bytes, but --binary d:uint8[2] has 2" in cell.error, cell.all
    spark.ok("lengths = spark.range(0, 100, 1, 2).selectExpr('array_repeat(id, if(id < 50, 2, 3)) d')")
    cell = spark.fails("%tfcluster train lengths")  # each partition is right by itself
    assert "column 'd' of DATA is an array of int64 of shape" in cell.error, cell.all
    spark.ok("%tfcluster start count")
    cell = spark.ok("ids = df.select('id')\nrun = %tfcluster train ids\ntotal(run)[0]")
    assert cell.result == "100", cell.all
