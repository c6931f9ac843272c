"""DataFrames as TFRecords on a real Spark, whose executors have no package tfcluster."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tfcluster import tfexample, tfrecord
from tfcluster.tfexample import BYTES, FLOAT, INT64, Feature

pyspark = pytest.importorskip("pyspark", reason="missing: pyspark")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("missing: java", allow_module_level=True)

from pyspark.sql import Row, SparkSession  # noqa: E402
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType  # noqa: E402

from tfcluster.tfos import dfutil  # noqa: E402

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
_HIDES = """
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tfcluster":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hides())
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark whose Python workers do not find tfcluster."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "sitecustomize.py").write_text(_HIDES)  # make demo installs tfcluster for this Python
        patch.setenv("PYTHONPATH", str(folder))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.chdir(folder)
        builder = SparkSession.builder.master("local[2]").config("spark.local.dir", str(folder))
        for key, value in _QUIET.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        yield session
        session.stop()
        os.environ.pop("PYSPARK_SUBMIT_ARGS", None)


def names(folder: pathlib.Path) -> list[str]:
    """The names in a folder, without those of checksums."""
    return sorted(path.name for path in folder.iterdir())


def examples(folder: pathlib.Path) -> list[dict[str, Feature]]:
    """The Examples of a folder, in the order of its files."""
    found = []
    for path in sorted(folder.glob("part-r-*")):
        with path.open("rb") as file:
            found += [tfexample.decode(record) for record in tfrecord.read_records(file)]
    return found


def save(folder: pathlib.Path, *records: dict[str, Feature] | bytes, name: str = "part-r-00000") -> str:
    """A folder with a file of these records."""
    folder.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        tfrecord.write_records(file, [r if isinstance(r, bytes) else tfexample.encode(r) for r in records])
    return str(folder)


def ints(*values: int) -> Feature:
    return Feature(INT64, list(values))


def test_executors_have_no_tfcluster(spark: Any) -> None:
    """Otherwise the other tests would prove little."""

    def finds(_: Any) -> bool:
        try:
            import tfcluster  # noqa: F401
        except ModuleNotFoundError:
            return False
        return True

    assert spark.sparkContext.parallelize([1], 1).map(finds).collect() == [False]


def test_round_trip(spark: Any, tmp_path: pathlib.Path) -> None:
    """TensorFlowOnSpark's own test, test_dfutil.py, with more types, in a folder whose name is an odd one."""
    folder = tmp_path / "ä b%20,#1"
    row = ("text é𝄞", -1, [2, -3, 1 << 62], -1.1, [-2.2, 3.3], bytearray(b"\xff\xfe"), True, [True, False], ["a", ""])
    df = spark.createDataFrame([row], [*"abcdefghi"])
    dfutil.saveAsTFRecords(df, str(folder))
    assert names(folder) == ["_SUCCESS", "part-r-00000", "part-r-00001"]
    loaded = dfutil.loadTFRecords(spark.sparkContext, str(folder), binary_features=["f"])
    assert loaded.dtypes == [
        ("a", "string"), ("b", "bigint"), ("c", "array<bigint>"), ("d", "double"), ("e", "array<double>"),
        ("f", "binary"), ("g", "bigint"), ("h", "array<bigint>"), ("i", "array<string>"),
    ]  # fmt: skip
    (got,) = loaded.collect()
    assert got == Row(
        a=row[0], b=-1, c=row[2], d=float(np.float32(-1.1)), e=np.array(row[4], "f").tolist(), f=row[5], g=1, h=[1, 0],
        i=["a", ""],
    )  # fmt: skip
    assert not dfutil.isLoadedDF(df)
    assert dfutil.isLoadedDF(loaded) and dfutil.loadedDF[loaded] == str(folder)
    assert not dfutil.isLoadedDF(loaded.filter(loaded.b == 1))


def test_tensorflow_reads_and_writes(spark: Any, tmp_path: pathlib.Path) -> None:
    tf = pytest.importorskip("tensorflow", reason="missing: tensorflow")
    df = spark.createDataFrame([(i, [i / 2] * 3, str(i)) for i in range(100)], "x int, y array<float>, z string")
    dfutil.saveAsTFRecords(df.repartition(3), str(tmp_path / "ours"))
    form = {"x": tf.io.FixedLenFeature([], "int64"), "y": tf.io.FixedLenFeature([3], "float32")}
    form["z"] = tf.io.FixedLenFeature([], "string")
    got = {}
    for record in tf.data.TFRecordDataset([str(p) for p in sorted((tmp_path / "ours").glob("part-*"))]):
        parsed = tf.io.parse_single_example(record, form)
        got[int(parsed["x"])] = (parsed["y"].numpy().tolist(), parsed["z"].numpy())
    assert got == {i: ([i / 2] * 3, str(i).encode()) for i in range(100)}
    with tf.io.TFRecordWriter(str(tmp_path / "theirs"), "GZIP") as writer:
        for i in range(10):
            features = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[-i]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    loaded = dfutil.loadTFRecords(spark, str(tmp_path / "theirs"))
    assert [row.x for row in loaded.collect()] == [-i for i in range(10)]


def test_the_program_s_own_jobs(spark: Any) -> None:
    """toTFExample and fromTFExample in tasks, where the function of a program refers to the module."""
    df = spark.createDataFrame([(1, "a", [1.5, 2.5])], "x int, s string, y array<double>")
    dfutil.loadedDF[df] = "a DataFrame, which cannot be pickled"
    pairs = df.rdd.mapPartitions(dfutil.toTFExample(df.dtypes))
    data, none = pairs.collect()[0]
    assert (type(data), none) == (bytearray, None)
    back = pairs.mapPartitions(lambda records: dfutil.fromTFExample(records, ["s"])).collect()
    assert back == [Row(s=bytearray(b"a"), x=1, y=[1.5, 2.5])]


def test_examples_in_all_forms() -> None:
    example = {
        "b": ints(1),
        "a": Feature(BYTES, [b"x", b"y"]),
        "c": Feature(FLOAT, np.float32([])),
        "d": Feature("", []),
    }
    forms: list[Any] = [example, tfexample.encode(example)]
    try:
        import tensorflow as tf

        forms.append(tf.train.Example.FromString(forms[1]))
    except ImportError:
        pass
    for form in forms:
        schema = dfutil.infer_schema(form, binary_features=["a"])
        types = {field.name: field.dataType for field in schema}
        assert list(types) == ["a", "b", "c", "d"]
        assert types == {"a": ArrayType(BinaryType()), "b": LongType(), "c": StringType(), "d": StringType()}
    rows = dfutil.fromTFExample([(tfexample.encode(example), None), *forms])
    assert rows == [Row(a=["x", "y"], b=1, c=None, d=None)] * (len(forms) + 1)
    assert dfutil.infer_schema({"x": Feature(FLOAT, np.float32([1, 2]))})["x"].dataType == ArrayType(DoubleType())
    with pytest.raises(ValueError, match="feature 'x' is no UTF-8 text: name it in binary_features"):
        dfutil.fromTFExample([{"x": Feature(BYTES, [b"\xff"])}])


def test_empty(spark: Any, tmp_path: pathlib.Path) -> None:
    """No row, empty partitions, empty files: whole folders without records, which need a schema to be loaded."""
    empty = spark.createDataFrame([], "x int, y array<string>")
    dfutil.saveAsTFRecords(empty, str(tmp_path / "none"))
    assert "_SUCCESS" in names(tmp_path / "none") and not examples(tmp_path / "none")
    with pytest.raises(ValueError, match="has no record, which shows the columns: name them, as in schema="):
        dfutil.loadTFRecords(spark, str(tmp_path / "none"))
    loaded = dfutil.loadTFRecords(spark, str(tmp_path / "none"), schema="x int, y array<string>")
    assert (loaded.collect(), loaded.dtypes) == ([], [("x", "int"), ("y", "array<string>")])
    dfutil.saveAsTFRecords(spark.range(0, 2, 1, 5), str(tmp_path / "few"))
    assert len(names(tmp_path / "few")) == 6
    assert sorted(row.id for row in dfutil.loadTFRecords(spark, str(tmp_path / "few")).collect()) == [0, 1]


def test_lists_of_any_length(spark: Any, tmp_path: pathlib.Path) -> None:
    """Ragged lists stay as they are if the first record's is no scalar, or with a schema."""
    lists = [[], [1], [1, 2, 3]]
    df = spark.createDataFrame(
        [(i, x, [str(y) for y in x]) for i, x in enumerate(lists)], "i int, x array<int>, s array<string>"
    )
    dfutil.saveAsTFRecords(df.coalesce(1), str(tmp_path / "a"))
    loaded = dfutil.loadTFRecords(spark, str(tmp_path / "a"))
    assert sorted((row.i, row.x, row.s) for row in loaded.collect()) == [
        (i, x, [str(y) for y in x]) for i, x in enumerate(lists)
    ]
    dfutil.saveAsTFRecords(df.where("i > 0").coalesce(1), str(tmp_path / "b"))
    with pytest.raises(Exception, match=r"part-r-00000, record 1: feature '[sx]' has 3 values for (string|bigint)"):
        dfutil.loadTFRecords(spark, str(tmp_path / "b")).collect()
    loaded = dfutil.loadTFRecords(spark, str(tmp_path / "b"), schema="x array<int>")
    assert sorted(row.x for row in loaded.collect()) == [[1], [1, 2, 3]]


def test_features_that_are_not_in_all_records(spark: Any, tmp_path: pathlib.Path) -> None:
    """A missing feature is NULL; TensorFlowOnSpark fails. One that the first record lacks is an error, as there."""
    folder = save(tmp_path / "a", {"a": ints(1), "b": ints(1, 2), "c": Feature(BYTES, [b"x"])}, {"a": ints(2)}, {})
    got = dfutil.loadTFRecords(spark, folder).collect()
    assert got == [Row(a=1, b=[1, 2], c="x"), Row(a=2, b=None, c=None), Row(a=None, b=None, c=None)]
    folder = save(tmp_path / "b", {"a": ints(1)}, {"a": ints(2), "z": ints(3)})
    with pytest.raises(Exception, match="record 1: feature 'z' is not in the first record"):
        dfutil.loadTFRecords(spark, folder).collect()
    got = dfutil.loadTFRecords(spark, folder, schema="z smallint").collect()
    assert got == [Row(z=None), Row(z=3)]


def test_types_of_a_schema(spark: Any, tmp_path: pathlib.Path) -> None:
    """Each type that is saved is loaded as itself."""
    schema = "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary"
    schema += ", j array<boolean>, k array<tinyint>, l array<float>, m array<binary>"
    row = (True, -1, -2, -3, -4, 1.5, 2.5, "é", bytearray(b"\xff"), [True, False], [1, -1], [0.5], [bytearray(b"\0")])
    df = spark.createDataFrame([row], schema)
    dfutil.saveAsTFRecords(df, str(tmp_path / "a"))
    loaded = dfutil.loadTFRecords(spark, str(tmp_path / "a"), schema=df.schema)
    assert (loaded.dtypes, [tuple(each) for each in loaded.collect()]) == (df.dtypes, [row])


@pytest.mark.parametrize(
    ("rows", "schema", "says"),
    [
        ([(1,), (2,), (None,)], "x int", "partition 0, row 2, column 'x': NULL, which no feature has: fill or drop it"),
        ([([1, None],)], "x array<int>", "partition 0, row 0, column 'x', element 1: NULL"),
        ([(None,)], "x array<double>", "partition 0, row 0, column 'x': NULL"),
        ([(None,)], "x string", "partition 0, row 0, column 'x': NULL"),
        ([({"a": 1},)], "x map<string,int>", "column 'x' is of type map<string,int>, which tf.train.Example does not"),
        ([([[1]],)], "x array<array<int>>", "column 'x' is of type array<array<int>>"),
        ([(1, 2)], "x int, x int", "two columns have the name 'x'"),
    ],
)
def test_values_that_no_feature_has(spark: Any, tmp_path: pathlib.Path, rows: Any, schema: str, says: str) -> None:
    folder = tmp_path / "out"
    with pytest.raises(ValueError) as raised:
        dfutil.saveAsTFRecords(spark.createDataFrame(rows, schema).coalesce(1), str(folder))
    assert says in str(raised.value)
    assert not folder.exists()
