"""Folders of TFRecords: complete or absent, also on Spark Connect; what is passed over or named when they are read."""

from __future__ import annotations

import gzip
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from test_dfutil import examples, ints, names, save, spark  # noqa: F401 -- spark is a fixture

from tfcluster import tfexample
from tfcluster.tfos import dfutil, files


def test_a_folder_that_exists(spark: Any, tmp_path: pathlib.Path) -> None:  # noqa: F811
    (tmp_path / "there").mkdir()
    for folder in (str(tmp_path / "there"), f"file://{tmp_path}/there"):
        with pytest.raises(FileExistsError, match="exists already: choose another folder, or remove it"):
            dfutil.saveAsTFRecords(spark.range(1), folder)
    with pytest.raises(ValueError, match="is a pattern of paths"):
        dfutil.saveAsTFRecords(spark.range(1), str(tmp_path / "a*"))
    assert names(tmp_path) == ["there"]


def test_a_failed_save_leaves_nothing(spark: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def fails(batches: Any) -> Any:
        for batch in batches:
            if batch.column(0)[0].as_py() > 4:
                raise OSError("no space left")
            yield batch

    df = spark.range(0, 10, 1, 2).mapInArrow(fails, "id bigint")
    with pytest.raises(RuntimeError, match=r"saveAsTFRecords\('.*a'\): OSError: no space left; nothing was saved"):
        dfutil.saveAsTFRecords(df, str(tmp_path / "a"))
    assert names(tmp_path) == []
    stage = files.commit_stage
    lost = files.Written("part-r-00009-1", "part-r-00009", 3)
    monkeypatch.setattr(files, "commit_stage", lambda *args: stage(*args[:2], [*args[2], lost]))
    with pytest.raises(RuntimeError, match="the file part-r-00009-1 of 3 bytes, which a task wrote, is not complete"):
        dfutil.saveAsTFRecords(spark.range(2), str(tmp_path / "a"))
    assert names(tmp_path) == []


def test_tasks_that_are_tried_again(spark: Any, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """Each stage may run twice: no record is there twice, and none is missing."""
    output, aside = f"file:{tmp_path}/a", "_temporary-x"
    one, df = spark.range(0, 1, 1, 1), spark.range(0, 6, 1, 2)
    columns = dfutil.rows.columns(df.dtypes)

    def ran(frame: Any, stage: Any) -> list[files.Written]:
        return [files.Written(*said) for said in frame.mapInArrow(stage, files.SAID).collect()]

    for _ in range(2):
        assert ran(one, files.begin_stage(output, aside)) == [files.Written()]
    lost, kept = (ran(df, files.write_stage(output, aside, columns)) for _ in range(2))
    assert {each.name for each in lost}.isdisjoint(each.name for each in kept)
    for _ in range(2):
        ran(one, files.commit_stage(output, aside, kept))
    assert names(tmp_path / "a") == ["_SUCCESS", "part-r-00000", "part-r-00001"]
    assert [int(example["id"].values[0]) for example in examples(tmp_path / "a")] == list(range(6))
    assert "exists already" in ran(one, files.begin_stage(output, aside))[0].refused


def test_what_is_passed_over(spark: Any, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """Hidden names, and empty files; a file alone, a pattern, and compressed files are read."""
    folder = save(tmp_path / "a", {"x": ints(1)})
    save(tmp_path / "a", {"x": ints(2)}, name="part-r-00001")
    (tmp_path / "a" / "part-r-00002.gz").write_bytes(gzip.compress((tmp_path / "a" / "part-r-00000").read_bytes()))
    for name in ("_SUCCESS", "_logs", ".part-r-00000.crc", "part-r-00003"):
        (tmp_path / "a" / name).write_bytes(b"" if name[0] == "p" else b"no records")
    for path, values in ((folder, [1, 1, 2]), (f"{folder}/part-r-00001", [2]), (f"{folder}/part-*[01]", [1, 2])):
        assert sorted(row.x for row in dfutil.loadTFRecords(spark, path).collect()) == values


def test_content_by_spark(spark: Any, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """Where a path is no local one, Spark reads the content of files."""
    folder = save(tmp_path / "a", *[{"x": ints(i)} for i in range(2500)])
    found = spark.read.format("binaryFile").load(folder).select("path", "content")
    read = found.mapInArrow(files.read_stage(dfutil.rows.columns([("x", "bigint")]), True), "x bigint")
    assert [row.x for row in read.collect()] == list(range(2500))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"id,x\n1,2\n3,4\n", "part-r-00000, offset 0: the checksum of a record's length is wrong: this is no file"),
        (b"", "has no record"),
        (None, "Path does not exist"),
    ],
)
def test_files_of_others(spark: Any, tmp_path: pathlib.Path, data: bytes | None, says: str) -> None:  # noqa: F811
    if data is not None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "part-r-00000").write_bytes(data)
    with pytest.raises(Exception) as raised:
        dfutil.loadTFRecords(spark, str(tmp_path / "a"))
    assert says in str(raised.value)


def test_damaged_records(spark: Any, tmp_path: pathlib.Path) -> None:  # noqa: F811
    folder = save(tmp_path / "a", {"x": ints(1)}, {"x": ints(2)})
    path = tmp_path / "a" / "part-r-00000"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Exception, match=rf"part-r-00000, offset {size // 2}: the file ends within a record"):
        dfutil.loadTFRecords(spark, folder).collect()
    folder = save(tmp_path / "b", {"x": ints(1)}, b"no Example")
    with pytest.raises(Exception, match="part-r-00000, record 1: no tf.train.Example: byte"):
        dfutil.loadTFRecords(spark, folder).collect()
    folder = save(tmp_path / "c", {"x": ints(1)}, {"x": tfexample.Feature("float", [1.5])})
    with pytest.raises(Exception, match="record 1: feature 'x' has values of the kind float for bigint"):
        dfutil.loadTFRecords(spark, folder).collect()


_CONNECT = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from tfcluster.tfos import dfutil
df = spark.createDataFrame([(i, [float(i)] * i, str(i)) for i in range(4)], "i int, x array<double>, s string")
dfutil.saveAsTFRecords(df, sys.argv[2])
loaded = dfutil.loadTFRecords(spark, sys.argv[2])
assert dfutil.isLoadedDF(loaded) and not dfutil.isLoadedDF(df)
print(sorted(map(tuple, dfutil.loadTFRecords(spark, sys.argv[2], schema=df.schema).collect())))
for frame in (df, df.selectExpr("NULL AS i")):
    try:
        dfutil.saveAsTFRecords(frame, sys.argv[2] + "2" * (frame is not df))
    except (FileExistsError, ValueError) as e:
        print(type(e).__name__, e)
spark.stop()
"""


def test_connect(tmp_path: pathlib.Path) -> None:
    """The same on Spark Connect, in a process of its own."""
    pytest.importorskip("grpc", reason="missing: grpc")
    package = str(pathlib.Path(files.__file__).parents[2])
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_SUBMIT_ARGS")}
    done = subprocess.run(
        [sys.executable, "-c", _CONNECT, package, str(tmp_path / "a")],
        env=env | {"PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout.splitlines()
    assert said[0] == str([(i, [float(i)] * i, str(i)) for i in range(4)])
    assert said[1].startswith("FileExistsError saveAsTFRecords: ")
    assert "column 'i' is of type void" in said[2]
