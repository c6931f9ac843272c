"""DataFrames of Spark, saved as TFRecords and loaded from them: the interface of TensorFlowOnSpark's dfutil.

It needs neither TensorFlow nor the Hadoop formats of tensorflow-hadoop, and takes one way on all of Spark 3.5 and
4, classic and Connect: a stage of mapInArrow, whose functions Spark pickles with their modules, so that executors
need no package but pyarrow and NumPy.

saveAsTFRecords writes by pyarrow.fs from the tasks: Spark has no sink for bytes without Hadoop's formats. Spark
tells the qualified path, so a path without a scheme is where Spark has it. Each task writes a file of its own in a
folder aside; when all are written, one task gives those of the attempts that Spark counted their names, then
writes _SUCCESS. It is a task because a client of Spark Connect may not see the files. Reading of local files is by
path; of all others Spark reads the content (its source binaryFile), because it has every file system and its
credentials: such a file must be smaller than 2 GB and fit an executor's memory.

Differences to TensorFlowOnSpark 2.2.5: all values of a feature of bytes are kept, not the first one alone; strings
and binary may be arrays; a feature that a record lacks is NULL; a list that is empty in a record stays empty; a
NULL in a row is an error, where a string was saved as 'None'.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tfcluster import spark_errors, tfexample, tfrecord
from tfcluster.tfos import files, rows


class _Loaded(dict[Any, str]):
    """The dict loadedDF: when a program's function refers to this module, Spark pickles it without its content."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, ())


loadedDF: dict[Any, str] = _Loaded()  # noqa: N816 -- TensorFlowOnSpark's name; the folder by the DataFrame

_TYPES: dict[str, Callable[[], DataType]] = {
    "bigint": LongType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
}


def isLoadedDF(df: Any) -> bool:  # noqa: N802
    """Reports whether loadTFRecords returned this DataFrame, and not one that was made from it."""
    return df in loadedDF


def saveAsTFRecords(df: Any, output_dir: str) -> None:  # noqa: N802
    """Saves a DataFrame as TFRecords of tf.train.Example: a file for each partition in the new folder output_dir.

    Numbers and booleans are lists of int64 or float32, strings and binary lists of bytes; a column of arrays is a
    list of its values, every other one a list of one.

    Raises FileExistsError if output_dir exists, ValueError for a type or a value that an Example does not have, and
    RuntimeError if a task fails. There is then no file of TFRecords in output_dir.
    """
    columns = rows.columns(df.dtypes)
    spark = df.sparkSession
    output, aside = _new_folder(spark, output_dir), f"_temporary-{secrets.token_hex(8)}"
    written: list[files.Written] = []

    def one(stage: files.Stage) -> list[files.Written]:
        return _ran(spark.range(0, 1, 1, 1), stage, output_dir)

    if said := [each.refused for each in one(files.begin_stage(output, aside)) if each.refused]:
        raise FileExistsError(f"saveAsTFRecords: {said[0]}")
    try:
        written = _ran(df, files.write_stage(output, aside, columns), output_dir)
        if said := [each.refused for each in written if each.refused]:
            raise rows.RowError(f"saveAsTFRecords({output_dir!r}): {said[0]}; nothing was saved")
        one(files.commit_stage(output, aside, written))
    except BaseException as e:  # an interrupt, too
        try:
            one(files.undo_stage(output, aside, [each.final for each in written if each.final]))
        except Exception as left:
            e.add_note(f"{output}/{aside} was not removed ({left}): without _SUCCESS the folder is not complete")
        raise


def loadTFRecords(  # noqa: N802
    sc: Any, input_dir: str, binary_features: Collection[str] = (), schema: Any = None
) -> Any:
    """Returns a DataFrame of the tf.train.Examples in a folder's files, of a file, or of those of a pattern.

    sc is a SparkContext or a SparkSession, also of Spark Connect. Files with names that begin with _ or . are passed
    over; those compressed by GZIP or ZLIB are read as well. binary_features has the names of features of bytes that
    are no text. The first record shows the columns: see infer_schema. Where it does not show them all, or has one
    value of a list that others have more of, schema has them, as "a array<bigint>, b string" or a StructType; other
    features are then passed over. A feature that a record lacks is NULL.

    Raises ValueError if there is no record and no schema. A file that is damaged, or a record that does not fit
    the columns, fails the job that reads it, by an error with the file and the record.
    """
    spark = sc if hasattr(sc, "createDataFrame") else _session()
    found = spark.read.format("binaryFile").load(input_dir)
    local = all(path.startswith("file:") for path in found.inputFiles())
    found = found.select("path") if local else found.select("path", "content")
    if schema is None:
        first = found.mapInArrow(files.first_stage(), "path string, record binary").take(1)
        if not first:
            raise ValueError(f"loadTFRecords: {input_dir} has no record, which shows the columns: {_NAMED}")
        try:
            example = tfexample.decode(bytes(first[0]["record"]))
        except tfexample.ExampleError as e:
            raise ValueError(f"loadTFRecords: {first[0]['path']}, record 0: {e}") from e
        columns = rows.inferred(example, binary_features, by_kind=True)
        struct = _struct(columns)
    else:
        struct = schema if isinstance(schema, StructType) else spark.createDataFrame([], schema).schema
        columns = rows.columns((field.name, field.dataType.simpleString()) for field in struct.fields)
    if not columns:
        raise ValueError(f"loadTFRecords: the first record of {input_dir} has no features: {_NAMED}")
    df = found.mapInArrow(files.read_stage(columns, schema is None), struct)
    loadedDF[df] = input_dir
    return df


def toTFExample(dtypes: Iterable[tuple[str, str]]) -> Callable[[Iterable[Any]], list[tuple[bytearray, None]]]:  # noqa: N802
    """Returns a function for RDD.mapPartitions, from the Rows of a DataFrame with these dtypes to tf.train.Examples.

    It returns pairs of an Example's bytes and None, as saveAsNewAPIHadoopFile takes them.
    """
    columns = rows.columns(dtypes)

    def examples(iter: Iterable[Any]) -> list[tuple[bytearray, None]]:
        return [(bytearray(rows.row_example(row, columns, number)), None) for number, row in enumerate(iter)]

    return examples


def fromTFExample(iter: Iterable[Any], binary_features: Collection[str] = ()) -> list[Row]:  # noqa: N802
    """Returns the Rows of tf.train.Examples, for RDD.mapPartitions.

    An Example is bytes, a tf.train.Example, what tfexample.decode returned, or a tuple with one of these first. A
    feature with one value is a scalar, with more a list, without any None. Features of bytes are strings, or
    bytearrays if they are in binary_features.
    """
    found = []
    for record in iter:
        example = _decoded(record[0] if isinstance(record, (tuple, list)) else record)
        found.append(Row(**{name: rows.plain(name, example[name], binary_features) for name in sorted(example)}))
    return found


def infer_schema(example: Any, binary_features: Collection[str] = ()) -> StructType:
    """Returns the schema of a DataFrame for a tf.train.Example, its bytes, or what tfexample.decode returned.

    int64 is LongType, float DoubleType, bytes StringType, or BinaryType if the name is in binary_features; a feature
    of several values is an ArrayType of it, and one without any a StringType.
    """
    return _struct(rows.inferred(_decoded(example), binary_features))


_NAMED = "name them, as in schema='a array<bigint>, b string'"


def _decoded(example: Any) -> Any:
    """Returns the features of an Example in any of its forms."""
    if hasattr(example, "SerializeToString"):
        example = example.SerializeToString()
    return tfexample.decode(example) if isinstance(example, (bytes, bytearray, memoryview)) else example


def _struct(columns: Iterable[rows.Column]) -> StructType:
    fields = []
    for column in columns:
        base = _TYPES[column.base]()
        fields.append(StructField(column.name, ArrayType(base) if column.many else base, True))
    return StructType(fields)


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _new_folder(spark: Any, output_dir: str) -> str:
    """Returns the qualified path of a folder that does not exist, as Spark has it."""
    if re.search(r"[*?\[\]{}\\]", output_dir):
        raise ValueError(
            f"saveAsTFRecords: {output_dir!r} is a pattern of paths for Spark: choose a name without *?[]{{}}\\"
        )
    try:
        _ = spark.read.format("binaryFile").load(output_dir).schema  # Spark Connect looks only now
    except Exception as e:  # of several classes
        absent = re.search(r"Path does not exist: (.+?)\.(?: SQLSTATE: \w+)?(?:;|$)", str(e), re.MULTILINE)
        if absent is None:
            raise RuntimeError(f"saveAsTFRecords: Spark cannot look for {output_dir}: {spark_errors.words(e)}") from e
        return absent[1]
    raise FileExistsError(f"saveAsTFRecords: {output_dir} exists already: choose another folder, or remove it")


def _ran(frame: Any, stage: files.Stage, output_dir: str) -> list[files.Written]:
    """Returns the reports of a stage's tasks."""
    try:
        return [files.Written(*said) for said in frame.mapInArrow(stage, files.SAID).collect()]
    except Exception as e:
        # Spark's text has the task's traceback, of which the last line is the error.
        told = re.findall(r"Traceback \(most recent call last\):\n(?:[ ].*\n|\n)+(\S[^\n]*)", str(e))
        raise RuntimeError(
            f"saveAsTFRecords({output_dir!r}): {told[-1] if told else spark_errors.words(e)}; nothing was saved"
        ) from e


for _module in (spark_errors, tfexample, tfrecord, rows, files, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # executors have no tfcluster; a program's functions may refer to it
del _module
