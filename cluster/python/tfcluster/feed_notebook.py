"""The notebook's end of a feed: what DATA is, and the thread that reads it."""

from __future__ import annotations

import importlib.util
import itertools
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tfcluster import feed_link, feed_source, feed_spark, spark_gpus
from tfcluster.errors import UsageError
from tfcluster.feed_data import Source, check_arrow, check_spark, chosen

_PARTITION = 256 << 20  # bytes of a partition of the notebook's data
_BATCH = 64 << 20  # bytes that are made a record batch at once
_BINARY = re.compile(r"^([^:]+):([a-z]+[0-9]*)(?:\[([0-9, ]+)\])?$")


def binaries(given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """--binary image:uint8[28,28,1] as dtype, shape and number of bytes by column."""
    import numpy as np

    found = {}
    for text in given:
        match = _BINARY.match(text)
        try:
            if match is None:
                raise TypeError
            dtype = np.dtype(match[2])
        except TypeError:
            raise UsageError(f"--binary {text}: give COLUMN:TYPE[SHAPE], such as image:uint8[28,28,1]") from None
        shape = [int(n) for n in (match[3] or "").split(",") if n.strip()]
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        found[match[1]] = {"dtype": dtype.name, "shape": shape, "bytes": size, "text": text.partition(":")[2]}
    return found


def describe(value: Any, plan: Mapping[str, Any]) -> Source:
    """The source that a value is; UsageError where it cannot be fed."""
    source = _spark_frame(value, plan)
    if source is not None:  # tasks of Spark read it, with their own pyarrow
        return source
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            f"{sys.executable} has no pyarrow, which carries the data: run {sys.executable} -m pip install pyarrow, "
            "then run the cell again"
        )
    for kind in (_pandas, _arrow, _numpy, _dict, _iterator):
        source = kind(value, plan)
        if source is not None:
            return source
    name = type(value).__name__
    raise UsageError(
        f"it is a {name}: give a Spark or pandas DataFrame, an Arrow table, a NumPy array, a dict of arrays, "
        "or an iterator of batches"
    )


def _module(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


# ------------------------------------------------------------------ Spark


def _spark_frame(value: Any, plan: Mapping[str, Any]) -> Source | None:
    if _module(value) != "pyspark":
        return None
    if hasattr(value, "mapInArrow"):
        return SparkFrame(value, plan)
    if hasattr(value, "mapPartitionsWithIndex"):
        from tfcluster import feed_rdd

        return feed_rdd.SparkRdd(value, plan)
    raise UsageError(f"it is a {type(value).__name__} of Spark: give a DataFrame or an RDD")


class SparkFrame(Source):
    """A DataFrame, of a classic session or of Spark Connect: each partition is delivered by its task of Spark."""

    slots = True

    def __init__(self, frame: Any, plan: Mapping[str, Any]) -> None:
        if names := plan.get("columns"):
            frame = frame.select(*chosen(names, frame.columns, plan))
        self._frame = frame
        self.columns = tuple(frame.columns)
        for field in frame.schema.fields:
            check_spark(field.name, field.dataType)
        self._group = f"tfcluster-feed-{secrets.token_hex(8)}"
        self._over = threading.Event()
        self._profile = spark_gpus.for_feed(frame.sparkSession)

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        feed_spark.whole(feed_link, feed_source)
        stage = feed_source.spark_stage(dict(order), epoch)
        staged = feed_spark.mapped(self._frame, stage, feed_source.SPARK_SCHEMA, self._profile)
        return feed_spark.summed(self._collect(staged, epoch))

    def _collect(self, frame: Any, epoch: int) -> list[Any]:
        with feed_spark.jobs(frame.sparkSession, self._group, f"tfcluster: feed, epoch {epoch + 1}"):
            return feed_spark.collected(frame.collect, self._over)

    def waits(self) -> str:
        return feed_spark.waits(self._frame.sparkSession, self._group)

    def cancel(self) -> None:
        self._over.set()
        feed_spark.cancel(self._frame.sparkSession, self._group)


# ------------------------------------------------------ the notebook's own


class Parts(Source):
    """Data in the notebook's memory: part(begin, end) is a record batch of it. Every holder has a thread."""

    def __init__(self, total: int, width: float, part: Callable[[int, int], Any]) -> None:
        self.total = total
        self._part = part
        self._rows = max(1, int(_PARTITION / max(width, 1)))
        self._batch = max(1, int(_BATCH / max(width, 1)))
        self._over = threading.Event()

    def cancel(self) -> None:
        self._over.set()

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        workers = len(order["holders"])
        rows = max(1, min(self._rows, -(-self.total // workers)))
        begins = range(0, self.total, rows)
        return self._deliver(
            order, epoch, len(begins), lambda n: self._batches(begins[n], min(begins[n] + rows, self.total))
        )

    def _send(self, order: Mapping[str, Any], epoch: int, number: int, batches: Iterator[Any]) -> int:
        """Delivers a partition; returns the number of records."""
        return feed_source.deliver(order, epoch, number, 0, batches, once=True)

    def _batches(self, begin: int, end: int) -> Iterator[Any]:
        for at in range(begin, end, self._batch):
            if self._over.is_set():
                return
            yield self._part(at, min(at + self._batch, end))

    def _deliver(
        self, order: Mapping[str, Any], epoch: int, count: int, batches: Callable[[int], Iterator[Any]]
    ) -> int:
        """Delivers partitions, of which each thread takes the next one; returns the number of records."""
        numbers, lock = iter(range(count)), threading.Lock()
        total, problems = 0, []

        def work(holder: int) -> None:
            nonlocal total
            mine = {**order, "holders": [order["holders"][holder], *order["holders"]]}
            while not problems and not self._over.is_set():
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    rows = self._send({**mine, "first": True}, epoch, number, batches(number))
                    with lock:
                        total += rows
                except BaseException as e:
                    problems.append(e)

        threads = [
            threading.Thread(target=work, args=(n,), name="tfcluster-feed") for n in range(len(order["holders"]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return total


def _pandas(value: Any, plan: Mapping[str, Any]) -> Source | None:
    if _module(value) != "pandas" or not hasattr(value, "columns"):
        return None
    import pyarrow as pa

    if names := plan.get("columns"):
        value = value[chosen(names, value.columns, plan)]
    check_arrow(pa.Schema.from_pandas(value.head(1), preserve_index=False))
    width = value.memory_usage(index=False, deep=False).sum() / max(len(value), 1)
    schema = pa.Schema.from_pandas(value.head(1000), preserve_index=False)
    parts = Parts(
        len(value),
        float(width),
        lambda begin, end: pa.RecordBatch.from_pandas(value.iloc[begin:end], schema=schema, preserve_index=False),
    )
    parts.columns = tuple(map(str, value.columns))
    return parts


def _arrow(value: Any, plan: Mapping[str, Any]) -> Source | None:
    if _module(value) != "pyarrow" or not hasattr(value, "schema") or not hasattr(value, "num_rows"):
        return None
    import pyarrow as pa

    table = value if isinstance(value, pa.Table) else pa.Table.from_batches([value])
    if names := plan.get("columns"):
        table = table.select(chosen(names, table.column_names, plan))
    check_arrow(table.schema)
    parts = Parts(
        table.num_rows, table.nbytes / max(table.num_rows, 1), lambda begin, end: _one(table.slice(begin, end - begin))
    )
    parts.columns = tuple(table.column_names)
    return parts


def _one(table: Any) -> Any:
    """A table as one record batch."""
    return table.combine_chunks().to_batches()[0]


def _numpy(value: Any, plan: Mapping[str, Any]) -> Source | None:
    if _module(value) != "numpy" or not hasattr(value, "dtype"):
        return None
    source = _arrays({"": value}, plan)
    source.unnamed = True
    return source


def _dict(value: Any, plan: Mapping[str, Any]) -> Source | None:
    if not isinstance(value, Mapping):
        return None
    import numpy as np

    named = {str(name): np.asarray(each) for name, each in value.items()}
    if names := plan.get("columns"):
        named = {name: named[name] for name in chosen(names, tuple(named), plan)}
    return _arrays(named, plan)


def _arrays(named: Mapping[str, Any], plan: Mapping[str, Any]) -> Parts:
    lengths = {name: (len(v) if v.ndim else None) for name, v in named.items()}
    if not named or None in lengths.values() or len(set(lengths.values())) != 1:
        said = ", ".join(f"{name or 'the array'} has {'none' if n is None else n}" for name, n in lengths.items())
        raise UsageError(
            f"every array must have the same number of records along its first axis: {said or 'there is no array'}"
        )
    for name, values in named.items():
        if values.dtype.kind not in "biufSUO" or values.dtype == "float16":
            raise UsageError(f"{f'array {name}' if name else 'it'} is of {values.dtype}: cast it to a number or string")
    total = next(iter(lengths.values())) or 0
    width = sum(v.nbytes for v in named.values()) / max(total, 1)
    parts = Parts(total, width, lambda begin, end: batch_of({name: v[begin:end] for name, v in named.items()}))
    parts.shapes = {name: tuple(v.shape[1:]) for name, v in named.items() if v.ndim > 1}
    parts.columns = tuple(named)
    return parts


def batch_of(named: Mapping[str, Any]) -> Any:
    """NumPy arrays as a record batch; arrays of more than one dimension as lists of equal length."""
    import numpy as np
    import pyarrow as pa

    columns = []
    for values in named.values():
        if values.ndim == 1:
            columns.append(pa.array(values))
            continue
        flat = np.ascontiguousarray(values).reshape(-1)
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), flat.size // max(len(values), 1)))
    return pa.RecordBatch.from_arrays(columns, names=list(named))


class Batches(Parts):
    """An iterator of batches: each a dict of arrays, an array, or a record batch. It is read once."""

    once = True
    taken: list[tuple[int, Any]] | None = None  # every batch with its partition, in their order, if that is wanted

    def __init__(self, batches: Iterator[Any], first: Any) -> None:
        super().__init__(0, 1, lambda begin, end: None)
        self._lock = threading.Lock()
        self._iterator = itertools.chain([first], batches)
        self.unnamed = not isinstance(first, Mapping) and not hasattr(first, "schema")
        self.shapes = {name: tuple(v.shape[1:]) for name, v in _named(first).items() if v.ndim > 1}
        self.columns = tuple(_named(first)) if not hasattr(first, "schema") else tuple(first.schema.names)

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        return self._deliver(order, epoch, len(order["holders"]), self._taken)

    def _taken(self, partition: int) -> Iterator[Any]:
        while not self._over.is_set():
            with self._lock:
                batch = next(self._iterator, None)
                if batch is not None and self.taken is not None:
                    self.taken.append((partition, batch))
            if batch is None:
                return
            yield batch if hasattr(batch, "schema") else batch_of(_named(batch))


def _named(batch: Any) -> dict[str, Any]:
    import numpy as np

    if hasattr(batch, "schema"):
        return {}
    if isinstance(batch, Mapping):
        return {str(name): np.asarray(v) for name, v in batch.items()}
    return {"": np.asarray(batch)}


def _iterator(value: Any, _plan: Mapping[str, Any]) -> Source | None:
    if not isinstance(value, Iterator):
        return None
    first = next(value, None)
    if first is None:
        raise UsageError("it is an iterator without a batch: it may have been read before; make it again")
    return Batches(value, first)
