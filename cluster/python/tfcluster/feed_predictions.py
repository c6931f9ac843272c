"""The notebook's end of inference: the fed data with the results of its records, as an object of its kind."""

from __future__ import annotations

import collections
import json
import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfcluster import (
    feed_arrow,
    feed_data,
    feed_frame,
    feed_link,
    feed_notebook,
    feed_predict,
    feed_source,
    feed_spark,
    feed_tables,
    feed_values,
    spark_gpus,
)
from tfcluster.errors import UsageError
from tfcluster.feed_answers import PREDICTION
from tfcluster.feed_source import Refused


def of(value: Any, source: feed_data.Source, plan: Mapping[str, Any], again: bool) -> feed_data.Source:
    """Returns the source of inference over a value that source can feed.

    again: --output may have been written before.
    """
    if feed_tables.library(value) == "pyspark":
        return SparkPredictions(value, plan, again)
    assert isinstance(source, feed_notebook.Parts)
    kind = _Batches(source, plan) if isinstance(source, feed_notebook.Batches) else _kind_of(value, plan)
    collected = _Collected(source, kind, plan, again)
    source._send = collected.send  # type: ignore[method-assign]
    source.finish = collected.finish  # type: ignore[method-assign]
    return source


def text(value: Any) -> str:
    """Returns the text that a cell shows for a value."""
    if type(value).__module__.startswith("pyspark."):  # its repr may run a job
        return f"DataFrame[{', '.join(f'{name}: {kind}' for name, kind in value.dtypes)}]"
    return repr(value)


def _kept(plan: Mapping[str, Any], there: Iterable[str]) -> list[str]:
    """Returns the columns of DATA that the value has."""
    there = list(map(str, there))
    keep = [name for text in plan.get("keep") or () for name in feed_data.named(text, there)]
    for name in keep:
        if name not in there:
            raise feed_data.no_column("--keep", name, there)
    return keep or there


def _same(schemas: Sequence[Any]) -> Any:
    """Returns the schema of all results; None if there are none. RuntimeError if their schemas differ."""
    for schema in schemas[1:]:
        if not schema.equals(schemas[0], check_metadata=True):
            one, other = (", ".join(f"{f.name} {f.type}" for f in s) for s in (schemas[0], schema))
            raise RuntimeError(
                f"the tasks gave results of different types ({one}; {other}): give arrays of one type and shape"
            )
    return schemas[0] if schemas else None


# ------------------------------------------------------ the notebook's own


class _Kind:
    """A kind of value, with which results are joined. joined takes the results as NumPy arrays by name."""

    def __init__(self, keep: Sequence[str]) -> None:
        self.keep = keep

    def value(self, results: list[list[Any]]) -> Any:
        """Returns the value, from the results of each partition."""
        return self.joined(_arrays([batch for part in results for batch in part]))

    def joined(self, results: dict[str, Any]) -> Any:
        """Returns the value, from all results."""
        raise NotImplementedError

    def table(self, value: Any) -> Any:
        """Returns the value as an Arrow table."""
        raise NotImplementedError


def _kind_of(value: Any, plan: Mapping[str, Any]) -> _Kind:
    """Returns the kind of a table of the notebook."""
    if hasattr(value, "num_rows"):
        return _Table(value, plan)
    return _Frame(value, plan) if hasattr(value, "iloc") else _Arrays(value, plan)


def _arrays(results: list[Any]) -> dict[str, Any]:
    """Returns the results by name. Without a record names and types are unknown: an empty `prediction`."""
    import numpy as np

    schema = _same([batch.schema for batch in results])
    if schema is None:
        return {PREDICTION: np.empty(0)}
    return {
        field.name: np.concatenate([feed_predict.array_of(batch.column(n), field) for batch in results])
        for n, field in enumerate(schema)
    }


def _column(values: Any) -> Any:
    """Returns a NumPy array as a column of Arrow."""
    import pyarrow as pa

    if values.dtype.kind in "OSU":
        return pa.array(values.tolist())
    return feed_values.of_numpy(values)


class _Arrays(_Kind):
    """An array, or a dict of arrays."""

    def __init__(self, value: Any, plan: Mapping[str, Any]) -> None:
        self._named = {str(name): v for name, v in value.items()} if isinstance(value, Mapping) else None
        super().__init__(_kept(plan, self._named or ()))

    def joined(self, results: dict[str, Any]) -> Any:
        if self._named is None:
            return next(iter(results.values())) if len(results) == 1 else results
        import numpy as np

        return {**{name: np.asarray(self._named[name]) for name in self.keep}, **results}

    def table(self, value: Any) -> Any:
        import pyarrow as pa

        named = value if isinstance(value, Mapping) else {PREDICTION: value}
        return pa.table({name: _column(values) for name, values in named.items()})


class _Frame(_Kind):
    """A pandas DataFrame."""

    def __init__(self, value: Any, plan: Mapping[str, Any]) -> None:
        super().__init__(_kept(plan, value.columns))
        self._frame = value

    def joined(self, results: dict[str, Any]) -> Any:
        labels = {str(label): n for n, label in enumerate(self._frame.columns)}
        frame = self._frame.iloc[:, [labels[name] for name in self.keep]].copy()
        for name, values in results.items():
            frame[name] = values if values.ndim == 1 else list(values)
        return frame

    def table(self, value: Any) -> Any:
        import pyarrow as pa

        return pa.Table.from_pandas(value)


class _Table(_Kind):
    """A table or a record batch of Arrow."""

    def __init__(self, value: Any, plan: Mapping[str, Any]) -> None:
        super().__init__(_kept(plan, value.schema.names))
        self._value = value

    def joined(self, results: dict[str, Any]) -> Any:
        table = self._value.select(list(self.keep))
        columns = [*table.columns, *(_column(values) for values in results.values())]
        return type(table).from_arrays(columns, names=[*self.keep, *results])  # Table or RecordBatch

    def table(self, value: Any) -> Any:
        import pyarrow as pa

        return value if isinstance(value, pa.Table) else pa.Table.from_batches([value])


class _Batches(_Kind):
    """An iterator of batches: the value is a list of them."""

    def __init__(self, source: feed_notebook.Batches, plan: Mapping[str, Any]) -> None:
        super().__init__(_kept(plan, () if source.unnamed else source.columns))
        self._plan = plan
        self._taken: list[tuple[int, Any]] = []
        source.taken = self._taken

    def value(self, results: list[list[Any]]) -> Any:
        _same([batch.schema for part in results for batch in part])
        parts = [_arrays(part) for part in results]
        at = [0] * len(parts)
        batches = []
        for partition, batch in self._taken:
            kind = _kind_of(batch, self._plan)
            begin = at[partition]
            at[partition] += _length(batch)
            batches.append(kind.joined({name: v[begin : at[partition]] for name, v in parts[partition].items()}))
        return batches

    def table(self, value: Any) -> Any:
        import pyarrow as pa

        plan = {**self._plan, "keep": []}
        return pa.concat_tables([_kind_of(batch, plan).table(batch) for batch in value])


def _length(batch: Any) -> int:
    """Returns the number of records of a batch."""
    if hasattr(batch, "num_rows"):
        return int(batch.num_rows)
    return len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)


class _Collected:
    """Results of the notebook's own data, by partition."""

    def __init__(self, source: feed_notebook.Parts, kind: _Kind, plan: Mapping[str, Any], again: bool) -> None:
        self._source = source
        self._kind = kind
        self._lock = threading.Lock()
        self._results: dict[int, list[Any]] = {}
        self._output = os.path.abspath(plan["output"]) if plan.get("output") else ""
        if self._output and os.path.exists(self._output) and not again:
            raise UsageError(_exists_already(plan["output"]))

    def send(self, order: Mapping[str, Any], epoch: int, number: int, batches: Iterator[Any]) -> int:
        """Delivers a partition and waits for its results; returns the number of records."""
        found = []
        nan: collections.Counter[str] = collections.Counter()
        for _, results in feed_predict.exchange(order, epoch, number, 0, ((batch, None) for batch in batches), nan):
            feed_predict.check_names(results, self._kind.keep)
            found.append(results)
        with self._lock:
            self._results[number] = found
            self._source.nan.update(nan)
        return sum(batch.num_rows for batch in found)

    def finish(self) -> Any:
        """Returns the value; with --output writes it and returns the path."""
        last = max(self._results, default=-1)
        value = self._kind.value([self._results.get(number, []) for number in range(last + 1)])
        if not self._output:
            return value
        import pyarrow.parquet

        pyarrow.parquet.write_table(self._kind.table(value), self._output)
        return self._output


# ------------------------------------------------------------------- Spark


class SparkPredictions(feed_data.Source):
    """A DataFrame that is fed for inference. The value is a DataFrame of the same session."""

    slots = True

    def __init__(self, frame: Any, plan: Mapping[str, Any], again: bool) -> None:
        fed = feed_frame.columns_of(frame, plan.get("columns") or (), plan)
        keep = _kept(plan, frame.columns)
        names = [name for name in frame.columns if name in keep or name in fed]
        self.columns = tuple(fed)
        self._stage = feed_predict.Stage(names, [names.index(n) for n in fed], [names.index(n) for n in keep])
        self._frame = feed_frame.numbered(frame, names)
        self._output = str(plan.get("output") or "")
        self._group = f"tfcluster-inference-{secrets.token_hex(8)}"
        self._profile = spark_gpus.for_feed(frame.sparkSession)
        self._value: Any = None
        self._mode = "overwrite" if again else "error"
        if self._output and not again and _exists(frame.sparkSession, self._output):
            raise UsageError(_exists_already(self._output))

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        from pyspark.sql.types import BinaryType, StringType, StructField, StructType

        feed_spark.whole(feed_arrow, feed_source, feed_predict)
        kept = (self._frame.schema[str(n)] for n in self._stage.keep)
        fields = [StructField(f.name, f.dataType, True) for f in kept]  # NULL in the row of STATUS
        schema = StructType([StructField(feed_predict.STATUS, StringType()), *fields])
        schema.add(feed_predict.RESULT, BinaryType())
        stage = feed_predict.spark_stage(dict(order), self._stage)
        spark = self._frame.sparkSession
        with feed_spark.jobs(spark, self._group, "tfcluster: inference"):
            staged = _computed(feed_spark.mapped(self._frame, stage, schema, self._profile))
            said = staged.where(f"{feed_predict.STATUS} IS NOT NULL").select(feed_predict.STATUS).collect()
            states = [json.loads(row[0]) for row in said]
            self.nan = dict(sum((collections.Counter(state["nan"]) for state in states), collections.Counter()))
            for state in states:
                if state["refused"]:
                    raise Refused(state["refused"])
                if not state["whole"]:
                    raise feed_link.Stopped(state["stopped"])
            self._value = self._typed(staged, states)
            if self._output:
                self._value.write.parquet(self._output, mode=self._mode)
                staged.unpersist()
                self._value = spark.read.parquet(self._output)
        return sum(state["rows"] for state in states)

    def _typed(self, staged: Any, states: list[dict[str, Any]]) -> Any:
        """Returns the DataFrame with typed results, from the rows of spark_stage."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StructField, StructType

        written = [bytes.fromhex(state["schema"]) for state in states if "schema" in state]
        results = _same([pa.ipc.read_schema(pa.py_buffer(each)) for each in written])
        if results is None:  # no record: the type is unknown
            results = pa.schema([pa.field(PREDICTION, pa.float64(), metadata={"shape": "[]"})])
        fields = []
        for field in results:
            shape, kind = feed_predict.shape_of(field), field.type
            for _ in shape[1:] if shape else ():  # the column is flat
                kind = pa.list_(kind)
            fields.append(StructField(field.name, from_arrow_type(feed_predict.spark_type(kind)), True))
        kept = zip(self._stage.kept, (self._frame.schema[str(n)] for n in self._stage.keep), strict=True)
        named = [StructField(name, field.dataType, field.nullable) for name, field in kept]
        unpack = feed_predict.spark_unpack(results.serialize().to_pybytes(), self._stage.kept)
        return feed_spark.mapped(staged, unpack, StructType([*named, *fields]), self._profile)

    def waits(self) -> str:
        return feed_spark.waits(self._frame.sparkSession, self._group)

    def cancel(self) -> None:
        feed_spark.cancel(self._frame.sparkSession, self._group)

    def finish(self) -> Any:
        return self._value


def _computed(frame: Any) -> Any:
    """Returns a DataFrame with these rows, computed once: it does not ask the run again."""
    if hasattr(frame, "localCheckpoint"):  # on Spark Connect from 4.0
        return frame.localCheckpoint(eager=True)
    frame.persist()
    frame.where(f"{feed_predict.STATUS} IS NULL").count()
    return frame


def _exists(spark: Any, path: str) -> bool:
    """Reports whether something is at a path of Spark's file systems."""
    try:
        spark.read.format("binaryFile").load(path).schema  # noqa: B018  Spark Connect looks when the schema is asked for
    except Exception as e:
        if "PATH_NOT_FOUND" in str(e):
            return False
        raise UsageError(
            f"--output {path}: Spark cannot look there: {_reason(e)}; give a path that this session can write"
        ) from e
    return True


def _reason(e: Exception) -> str:
    """Returns the line of Spark's error with the reason: Py4J's first line names only the called method."""
    lines = str(e).splitlines() or [type(e).__name__]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0]


def _exists_already(output: str) -> str:
    return f"--output {output} exists already: choose another path, or remove it"
