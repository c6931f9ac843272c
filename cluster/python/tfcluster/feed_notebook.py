"""The notebook's end of a feed: the sources for DATA, and the threads that read the notebook's own data."""

from __future__ import annotations

import collections
import importlib.util
import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tfcluster import feed_arrow, feed_source, feed_tables, feed_values
from tfcluster.errors import UsageError
from tfcluster.feed_data import Source
from tfcluster.feed_source import Refused

_PARTITION = 256 << 20  # bytes of a partition of the notebook's data
_BATCH = 64 << 20  # bytes that are made a record batch at once
_END = object()
_BINARY = re.compile(r"^(.+):([a-z]+[0-9]*)(?:\[([0-9, ]+)\])?$")


def binaries(given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns --binary image:uint8[28,28,1] as dtype, shape and number of bytes by column."""
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
        found[match[1]] = {"dtype": dtype.name, "shape": shape, "bytes": size, "text": text[len(match[1]) + 1 :]}
    return found


def describe(value: Any, plan: Mapping[str, Any]) -> Source:
    """Returns the source of a value's records; raises UsageError if it cannot be fed."""
    if feed_tables.library(value) == "pyspark":  # tasks of Spark read it, with their own pyarrow
        return _of_spark(value, plan)
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            f"{sys.executable} has no pyarrow, which carries the data: run {sys.executable} -m pip install pyarrow, "
            "then run the cell again"
        )
    if (table := feed_tables.table_of(value, plan)) is not None:
        return Records(table)
    if isinstance(value, Iterator):
        return Batches(value, plan)
    raise UsageError(feed_tables.not_a_table(value, plan))


def _of_spark(value: Any, plan: Mapping[str, Any]) -> Source:
    if hasattr(value, "mapInArrow"):
        from tfcluster import feed_frame

        return feed_frame.SparkFrame(value, plan)
    if hasattr(value, "mapPartitionsWithIndex"):
        from tfcluster import feed_rdd

        return feed_rdd.SparkRdd(value, plan)
    name = type(value).__name__
    if hasattr(value, "to_spark"):
        raise UsageError(f"it is a {name} of pandas on Spark: give {plan.get('data') or 'x'}.to_spark()")
    raise UsageError(f"it is a {name} of Spark: give a DataFrame or an RDD")


class Parts(Source):
    """Data in the notebook's memory. part(begin, end) returns a record batch. Each holder has a thread."""

    def __init__(self, total: int, width: float, part: Callable[[int, int], Any]) -> None:
        self.total = total
        self._part = part
        self._rows = max(1, int(_PARTITION / max(width, 1)))
        self._batch = max(1, int(_BATCH / max(width, 1)))
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.nan: collections.Counter[str] = collections.Counter()

    def cancel(self) -> None:
        self._over.set()

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        workers = len(order["holders"])
        self.nan.clear()
        rows = max(1, min(self._rows, -(-self.total // workers)))
        begins = range(0, self.total, rows)
        return self._deliver(
            order, epoch, len(begins), lambda n: self._batches(begins[n], min(begins[n] + rows, self.total))
        )

    def _send(self, order: Mapping[str, Any], epoch: int, number: int, batches: Iterator[Any]) -> int:
        """Delivers a partition; returns the number of records."""
        counts: collections.Counter[str] = collections.Counter()
        rows = feed_source.deliver(order, epoch, number, 0, batches, counts, once=True)
        with self._lock:
            self.nan.update(counts)
        return rows

    def _batches(self, begin: int, end: int) -> Iterator[Any]:
        for at in range(begin, end, self._batch):
            if self._over.is_set():
                return
            yield self._part(at, min(at + self._batch, end))

    def _deliver(
        self, order: Mapping[str, Any], epoch: int, count: int, batches: Callable[[int], Iterator[Any]]
    ) -> int:
        """Delivers partitions: each thread takes the next one. Returns the number of records."""
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


class Records(Parts):
    """A table: a frame of pandas, a table of Arrow, an array or a dict of arrays."""

    def __init__(self, table: feed_tables.Table) -> None:
        super().__init__(table.rows, table.width, table.batch)
        self.columns = tuple(table.columns)
        self.unnamed = table.unnamed


def _kept(batch: Any) -> Any:
    """Returns a copy of a batch: its iterator may fill the same array again for the next batch."""
    if isinstance(batch, Mapping):
        return {name: _kept(values) for name, values in batch.items()}
    return batch.copy() if feed_tables.library(batch) in ("numpy", "pandas") else batch


class Batches(Parts):
    """An iterator of batches. Each batch is a table.

    It is read once. The first batch with records shows the columns, their types and shapes.
    """

    once = True
    taken: list[tuple[int, Any]] | None = None  # all batches with their partitions, in order, for inference

    def __init__(self, batches: Iterator[Any], plan: Mapping[str, Any]) -> None:
        super().__init__(0, 1, lambda begin, end: None)
        self._plan = plan
        self._reading = threading.Lock()
        self._number = 0  # of batches taken
        seen: list[Any] = []
        for batch in batches:
            seen.append(batch)
            table = self._table(batch)
            if table.rows:
                break
        if not seen:
            raise UsageError("it is an iterator without a batch: it may have been read before; make it again")
        self._iterator = itertools.chain(seen, batches)
        self._schema = table.batch(0, table.rows).schema
        self._widths: dict[str, list[int]] = {name: [] for name in table.columns}
        self.unnamed = table.unnamed
        self.columns = tuple(table.columns)

    def _table(self, batch: Any) -> feed_tables.Table:
        table = feed_tables.table_of(batch, self._plan, own=True)
        if table is None:
            raise UsageError(f"its batches cannot be fed: {feed_tables.not_a_table(batch, self._plan)}")
        return table

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        self.nan.clear()
        return self._deliver(order, epoch, len(order["holders"]), self._taken)

    def _taken(self, partition: int) -> Iterator[Any]:
        while not self._over.is_set():
            with self._reading:  # a program may give the same array again, with other values
                batch = next(self._iterator, _END)
                if batch is _END:
                    return
                if self.taken is not None:
                    self.taken.append((partition, _kept(batch)))
                self._number += 1
                records = self._like_first(batch)
            yield records

    def _like_first(self, batch: Any) -> Any:
        """Returns a batch as a record batch of the first one's columns and types; Refused if it differs."""
        import pyarrow as pa

        where = f"batch {self._number:,}"
        try:
            table = self._table(batch)
        except UsageError as e:
            raise Refused(f"{where}: {e}") from None
        if unlike := set(table.columns) ^ set(self.columns):
            name = min(unlike)
            has, first = ("has no", "has") if name in self.columns else ("has", "has not")
            raise Refused(f"{where} {has} column {name!r}, which the first one {first}: give all the same columns")
        records = table.batch(0, table.rows)
        columns = []
        for field in self._schema:
            column = records.column(field.name)
            try:
                if table.rows:
                    feed_arrow.fitted(column, self._widths[field.name])
                    column = feed_values.exactly(column, field.type)
            except feed_arrow.Unfit as e:
                raise Refused(
                    f"column {field.name!r}, {where}, row {e.row}: {e}; in the first batch it is "
                    f"{feed_arrow.item(field.type)}: give all batches one type and shape"
                ) from None
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns)) if table.rows else self._empty()

    def _empty(self) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_pylist([], self._schema)
