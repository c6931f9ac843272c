"""A producer of inference: it delivers the batches of a partition and takes the results of its records back.

Spark's executors have no package tfcluster: this module is pickled by value together with feed_link,
feed_arrow and feed_source, and imports the standard library, NumPy, pyarrow and pyspark alone.
"""

from __future__ import annotations

import collections
import json
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tfcluster import feed_arrow
from tfcluster.feed_link import FAULT, Link, Memory, Stopped
from tfcluster.feed_source import Order, Refused, _after, _connect, _parts, _put, checked

RESULT = "__tfcluster_result"  # column of a stage: the results of a record, as bytes
STATUS = "__tfcluster_status"  # column of a stage: JSON in the last row of a partition; NULL in rows of records

_AHEAD = 2  # slots that a producer asks for before it has filled one


def exchange(
    order: Order,
    epoch: int,
    partition: int,
    attempt: int,
    pairs: Iterable[tuple[Any, Any]],
    nan: collections.Counter[str] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Delivers the first of each pair of batches; yields the second with results, in parts, in their order.

    nan gets the number of NaN of each column. Stopped is raised if the holder takes no more.
    """
    besides: deque[Any] = deque()

    def fed() -> Iterator[Any]:
        for batch, beside in pairs:
            if batch.num_rows:
                besides.append(beside)
            yield batch

    batches = checked(order, partition, fed(), nan)
    first = next(batches, None)
    if first is None:
        return
    link = _connect(order, partition)
    try:
        link.send(
            "produce",
            feed=order["feed"],
            key=order["key"],
            epoch=epoch,
            partition=partition,
            attempt=attempt,
            digest="",
        )
        lease = link.receive()
        memory = link.memory(lease, writable=True)
        try:
            yield from _Exchange(link, memory).run(_after(0, first, batches), besides)
        finally:
            memory.close()
    finally:
        link.close()


class _Exchange:
    """One partition's connection. It sends batches and receives results, both in the order of the records."""

    def __init__(self, link: Link, memory: Memory) -> None:
        self._link = link
        self._memory = memory
        self._granted: list[int] = []
        # Of each batch without all results, the batch beside it and the number of its records.
        self._owed: deque[tuple[Any, int]] = deque()
        self._ready: deque[tuple[Any, Any]] = deque()

    def run(self, batches: Iterator[Any], besides: deque[Any]) -> Iterator[tuple[Any, Any]]:
        """Delivers all batches and yields all results."""
        for _ in range(_AHEAD):
            self._link.send("slot")
        pieces = 0
        for batch in batches:
            beside, at = besides.popleft(), 0
            for part in _parts(batch, self._memory.slot_size):
                while not self._granted:
                    yield from self._take(self._link.receive())
                slot = self._granted.pop()
                size = _put(part, self._memory.slot(slot))
                self._owed.append((None if beside is None else beside.slice(at, part.num_rows), part.num_rows))
                at += part.num_rows
                self._link.send("put", slot=slot, bytes=size, rows=part.num_rows, piece=pieces)
                self._link.send("slot")
                pieces += 1
                while self._link.waits():
                    yield from self._take(self._link.receive())
        self._link.send("end")
        while self._owed:
            yield from self._take(self._link.receive())
        self._link.send("done")
        while self._link.receive()["op"] != "done":
            pass

    def _take(self, message: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        match message["op"]:
            case "slot":
                self._granted.append(int(message["slot"]))
            case "results":
                yield self._results(message)
            case op:
                raise Refused(f"the executor's agent answered {op!r} instead of results; {FAULT}")

    def _results(self, message: dict[str, Any]) -> tuple[Any, Any]:
        """Reads results and frees their slot; returns the batch beside them, and the results."""
        import pyarrow as pa

        slot, begin, end = int(message["slot"]), int(message["begin"]), int(message["end"])
        results = pa.ipc.open_stream(bytes(self._memory.slot(slot, int(message["bytes"])))).read_next_batch()
        self._link.send("taken", slot=slot)
        beside, rows = self._owed[0]
        if end == rows:
            self._owed.popleft()
        if results.num_rows != end - begin:
            raise Refused(
                f"the program gave {results.num_rows:,} results for {end - begin:,} records: give one for each"
            )
        return None if beside is None else beside.slice(begin, end - begin), results


# ------------------------------------------------------------------- Spark


class Stage(NamedTuple):
    """The columns of a stage of inference. In the stage's DataFrame they have their numbers as names."""

    names: Sequence[str]
    feed: Sequence[int]  # numbers of the columns that are fed
    keep: Sequence[int]  # numbers of the columns that the value has

    @property
    def kept(self) -> list[str]:
        """Returns the names of the columns that the value has."""
        return [self.names[n] for n in self.keep]


def spark_stage(order: Order, stage: Stage) -> Any:
    """Returns the function for mapInArrow: it yields columns to keep, results as bytes, and a row of STATUS.

    The types of a stage must be known before it runs, and the types of the results are known only after the
    program has given some. So results are bytes here, and columns after spark_unpack.
    """
    names = [STATUS, *map(str, stage.keep), RESULT]

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError(f"this part of tfcluster runs in a task of Spark, and this is none; {FAULT}")
        partition, attempt = context.partitionId(), context.taskAttemptId()
        seen: list[Any] = []

        def pairs() -> Iterator[tuple[Any, Any]]:
            for batch in batches:
                beside = batch.select(list(stage.keep))
                if not seen:
                    seen.append(beside.schema)
                fed = [batch.column(n) for n in stage.feed]
                yield pa.RecordBatch.from_arrays(fed, names=[stage.names[n] for n in stage.feed]), beside

        status: dict[str, Any] = {"partition": partition, "rows": 0, "whole": False, "refused": "", "stopped": ""}
        nan: collections.Counter[str] = collections.Counter()
        try:
            for beside, results in exchange(order, 0, partition, attempt, pairs(), nan):
                check_names(results, stage.kept)
                status["rows"] += results.num_rows
                status["schema"] = results.schema.serialize().to_pybytes().hex()
                yield pa.RecordBatch.from_arrays(
                    [pa.nulls(results.num_rows, pa.string()), *beside.columns, packed(results)], names=names
                )
            status["whole"] = True
        except Refused as e:  # returned: Spark would try again after an exception, and hide it in its own
            status["refused"] = str(e)
        except Stopped as e:
            status["stopped"] = e.reason
        if seen:
            status["nan"] = nan
            yield pa.RecordBatch.from_arrays(
                [pa.array([json.dumps(status)]), *(pa.nulls(1, f.type) for f in seen[0]), pa.nulls(1, pa.binary())],
                names=names,
            )

    return run


def check_names(results: Any, keep: Sequence[str]) -> None:
    """Raises Refused if a result has the name of a column that is kept."""
    for name in results.schema.names:
        if name in keep:
            raise Refused(f"main_fun's result {name!r} is also a column of DATA: rename it, or name others by --keep")


def spark_unpack(schema: bytes, keep: Sequence[str]) -> Any:
    """Returns the function for mapInArrow after spark_stage: it yields the kept and the results' columns."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        results = pa.ipc.read_schema(pa.py_buffer(schema))
        for batch in batches:
            rows = batch.filter(batch.column(0).is_null())
            columns = [spark_column(c) for c in unpacked(rows.column(len(rows.columns) - 1), results)]
            yield pa.RecordBatch.from_arrays([*rows.columns[1:-1], *columns], names=[*keep, *results.names])

    return run


def shape_of(field: Any) -> tuple[int, ...] | None:
    """Returns the shape of a result; None if the results have different shapes."""
    said = (field.metadata or {}).get(b"shape")
    return None if said is None else tuple(json.loads(said))


def _layout(schema: Any) -> Any:
    """Returns a NumPy type for the results of a record; None if their size differs."""
    import numpy as np

    fields = []
    for field in schema:
        shape = shape_of(field)
        if shape is None:
            return None
        kind = field.type.value_type if shape else field.type
        fields.append((field.name, np.dtype(kind.to_pandas_dtype()), shape))
    return np.dtype(fields)


def array_of(column: Any, field: Any) -> Any:
    """Returns results as a NumPy array; it has one dimension and objects if their shapes differ."""
    import numpy as np

    shape = shape_of(field)
    if shape is None:
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
        return values
    flat = column.flatten() if shape else column
    return flat.to_numpy(zero_copy_only=False).reshape((len(column), *shape))


def packed(results: Any) -> Any:
    """Returns the results of each record as bytes."""
    import numpy as np
    import pyarrow as pa

    layout = _layout(results.schema)
    if layout is None:
        rows = zip(*(c.to_pylist() for c in results.columns), strict=True)
        return pa.array([pickle.dumps(row) for row in rows], pa.binary())
    values = np.empty(results.num_rows, dtype=layout)
    for field, column in zip(results.schema, results.columns, strict=True):
        values[field.name] = array_of(column, field)
    offsets = np.arange(results.num_rows + 1, dtype=np.int32) * layout.itemsize
    return pa.Array.from_buffers(
        pa.binary(), results.num_rows, [None, pa.py_buffer(offsets), pa.py_buffer(values.tobytes())]
    )


def unpacked(column: Any, schema: Any) -> list[Any]:
    """Returns the columns of results from the bytes of packed."""
    import numpy as np
    import pyarrow as pa

    layout = _layout(schema)
    if layout is None:
        rows = [pickle.loads(each) for each in column.to_pylist()]  # made by packed
        return [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(schema)]
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if pa.types.is_large_binary(column.type) else np.int32)
    begin = int(offsets[column.offset]) if len(column) else 0
    values = np.frombuffer(column.buffers()[2] or b"", dtype=layout, count=len(column), offset=begin)
    return [nested(values[field.name]) for field in schema]


def nested(values: Any) -> Any:
    """Returns a NumPy array as an Arrow array of lists of equal length."""
    import numpy as np
    import pyarrow as pa

    return feed_arrow.of_shape(pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape)


def spark_column(column: Any) -> Any:
    """Returns an Arrow array with a type that Spark has."""
    return column.cast(spark_type(column.type))


def spark_type(kind: Any) -> Any:
    """Returns the Arrow type that Spark has for the values of an Arrow type."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
    return {**wider, pa.float16(): pa.float32(), pa.null(): pa.string()}.get(kind, kind)
