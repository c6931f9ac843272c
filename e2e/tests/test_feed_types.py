"""B1 to B4: columns of Spark's DataFrames as arrays and tensors, and what is refused; classic and Spark Connect."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest
from conftest import ROOT, Notebook
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
KINDS = """
def kinds(args, ctx):
    feed, types = ctx.get_data_feed(), {}
    while (batch := feed.next_numpy(7)) is not None:
        types = {name: (v.dtype.name, v.shape[1:]) for name, v in batch.items()}
    return types
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
# Rows of a partition are counted from 0: of 100 rows in 4 partitions, id 57 is row 7 of partition 2.
WRONG = {
    "if(id = 57, null, id) d": "column 'd', partition 2, row 7: NULL; fill or drop it (fillna, dropna)",
    "array_repeat(1.0f, if(id = 57, 3, 2)) d": "column 'd', partition 2, row 7: an array of 3 values, 2 in the rows",
    "array(id, if(id = 57, null, id)) d": "column 'd', partition 2, row 7: NULL",
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


def documented() -> list[tuple[str, str]]:
    """The lines about Spark in the table of types of docs/feed.md: an expression, and what becomes of it."""
    rows = [line.strip("|").split("|") for line in (ROOT / "docs" / "feed.md").read_text().splitlines()]
    begin = next(n for n, row in enumerate(rows) if row[0].strip().startswith("Spark: "))
    end = next(n for n, row in enumerate(rows) if n > begin and len(row) != 3)
    found = [(row[1].strip().strip("`"), row[2].strip()) for row in rows[begin:end]]
    return [(example, says) for example, says in found if example]


def test_the_documented_types(spark: Notebook) -> None:
    """The table of docs/feed.md, and the number of NaN."""
    spark.ok(KINDS)
    for column, says in documented():
        if says.startswith("refused: "):
            continue
        spark.ok(f"one = spark.range(0, 10, 1, 2).selectExpr('id', {column + ' d'!r})\n%tfcluster start kinds")
        cell = spark.ok("run = %tfcluster train one\nrun.result")
        types = ast.literal_eval(cell.result)
        dtype, _, shape = says.strip("`]").partition("[")
        assert types["d"] == (dtype, tuple(int(n) for n in shape.split(", ") if n)), (column, cell.all)
        assert ("10 NaN in d" in cell.all) == ("NaN" in column), cell.all
    spark.ok("some = spark.range(0, 10, 1, 2).selectExpr('id', \"if(id = 7, double('NaN'), id) d\")")
    spark.ok("%tfcluster start kinds")
    cell = spark.fails("%tfcluster train some --nan refuse")
    assert "column 'd', partition 1, row 2: NaN, and --nan is refuse" in cell.error, cell.all
    spark.ok("%tfcluster stop --now")


def test_names(spark: Notebook) -> None:
    """Names with dots, quotes and commas are fed and chosen; text with a collation is text; results keep the names."""
    version = spark.ok("spark.version").result
    collated = "collate(concat('n', id), 'UNICODE_CI')" if version.strip("'") >= "4" else "concat('n', id)"
    spark.ok(KINDS + "def twice(args, ctx):\n    feed = ctx.get_data_feed(False)\n"
        "    for x in feed.as_iterable(3):\n        feed.results(2 * x)\n"
        "odd = spark.range(0, 9, 1, 2).selectExpr('id', 'id + 1 as `Sepal.Length`', 'id * 0.5D as `Sepal``Width`', "
        f"\"{collated} as `a,b`\", 'cast(id as char(4)) as c')")  # fmt: skip
    names = ["id", "Sepal.Length", "Sepal`Width", "a,b", "c"]
    for options, want in {
        "": names,
        "--columns Sepal.Length --label id": ["Sepal.Length", "id"],
        "--columns 'Sepal`Width' --columns a,b --label id": ["Sepal`Width", "a,b", "id"],
        "--columns 'id,Sepal.Length'": ["id", "Sepal.Length"],
    }.items():
        spark.ok("%tfcluster start kinds")
        types = result(spark, f"train odd {options}")
        assert isinstance(types, dict)
        assert list(types) == want
    spark.ok(
        "%tfcluster start twice\nout = %tfcluster inference odd --columns Sepal.Length --keep a,b --keep 'Sepal`Width'"
    )
    cell = spark.ok("sorted(map(tuple, out.collect()), key=str)[:2], out.columns")
    rows, columns = ast.literal_eval(cell.result)
    assert columns == ["a,b", "Sepal`Width", "prediction"] and rows == [("n0", 0.0, 2), ("n1", 0.5, 4)], cell.all


def test_what_cannot_be_fed(spark: Notebook) -> None:
    """B2, B3: a type is refused before a record is read, a value with its partition and row; the run goes on."""
    spark.ok(COUNT + TOTAL + "%tfcluster start count")
    for column, says in documented():
        if says.startswith("refused: "):
            spark.ok(f"bad = spark.range(0, 10, 1, 1).selectExpr('id', {column + ' d'!r})")
            cell = spark.fails("%tfcluster train bad")
            assert "column 'd'" in cell.error and says.removeprefix("refused: ") in cell.error, cell.all
            assert cell.error.count("\n") == 1, cell.all
    spark.ok(
        "bad = spark.range(10).selectExpr('id', 'current_date() a', 'struct(id) b')\ntwice = df.select('id', 'id')"
    )
    cell = spark.fails("%tfcluster train bad")
    assert "column 'a' is date: " in cell.error and "column 'b' is struct<id:bigint>: " in cell.error, cell.all
    assert "it has two columns 'id': rename one of them" in spark.fails("%tfcluster train twice").error
    spark.ok("bad = spark.readStream.format('rate').load().select('value')")
    assert "it is a stream, which has no end" in spark.fails("%tfcluster train bad").error
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
