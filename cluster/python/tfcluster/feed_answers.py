"""The program's results of inference, matched to the records that it received and sent to producers."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfcluster import feed_arrow, feed_columns, feed_values
from tfcluster.feed_link import Link, Memory, Stopped
from tfcluster.feed_source import Refused, _parts, _put

if TYPE_CHECKING:
    from tfcluster.feed_reader import Reader

PREDICTION = "prediction"  # the column of results without a name
PATIENCE = 300.0  # seconds for a first result from another thread, once the program waits for more records


class Answers:
    """A receiver of results, in the order in which the program received the records.

    Any thread may call its methods.
    """

    def __init__(self, reader: Reader, task: str) -> None:
        self._reader = reader
        self._task = task
        self._lock = threading.Condition(threading.RLock())
        self._giver = 0  # the thread that gave results last; 0: none yet
        self._batches: deque[int] = deque()  # records of each batch that the program has, without results
        self._answered_batches = 0
        self._begun = 0  # records of pieces[0] that have results
        self._columns: list[Any] = []  # these results
        self._schema: Any = None
        self._link: Link | None = None
        self._memory: Memory | None = None

    def handed(self, rows: int) -> None:
        """Records that the program receives a batch."""
        with self._lock:
            self._batches.append(rows)

    def end(self) -> None:
        """Raises RuntimeError if a batch has no results. It is called when the program has ended."""
        with self._lock:
            if self._batches:
                raise self._wrong(0, sum(self._batches))

    def await_some(self) -> None:
        """Waits for results, if another thread may give some; raises RuntimeError if none come.

        No more records come before the program gives results.
        """
        with self._lock:
            before = len(self._batches)
            patience = 0.0 if self._giver == threading.get_ident() else None if self._giver else PATIENCE
            if before and not self._lock.wait_for(lambda: self._giver and len(self._batches) < before, patience):
                within = f" within {patience:.0f} s" if patience else ""
                raise RuntimeError(
                    f"main_fun gave no results{within} for the {sum(self._batches):,} records that it has read "
                    f"({self._task}, batch {self._answered_batches + 1:,} and later): "
                    "give the results of a batch before you read the next one, "
                    "as in: for batch in feed.as_iterable(100): feed.results(model.predict_on_batch(batch))"
                )

    def _wrong(self, results: int, records: int) -> RuntimeError:
        batch = f"{self._task}, batch {self._answered_batches + 1:,}"
        return RuntimeError(f"main_fun gave {results:,} results for {records:,} records ({batch})")

    def give(self, values: Any) -> None:
        """Takes the results of the oldest batch, or of several whole batches."""
        results = batch_of(values, self._wrong)
        with self._lock:
            if results.num_rows:
                results = self._typed(results)
            self._answered(results.num_rows)
            if results.num_rows:
                self._schema = results.schema
            self._giver = threading.get_ident()
            self._lock.notify_all()
            self._send(results)

    def _answered(self, rows: int) -> None:
        """Removes whole batches of so many records from the batches without results."""
        sums = list(itertools.accumulate(self._batches))
        if rows not in sums and (rows or sums):
            raise self._wrong(rows, min(sums, key=lambda n: abs(n - rows), default=0))
        while rows:
            rows -= self._batches.popleft()
            self._answered_batches += 1

    def _typed(self, results: Any) -> Any:
        """Returns the results with the names and types of the first results."""
        import pyarrow as pa

        if self._schema is None:
            return results
        if results.schema.names != self._schema.names:
            raise RuntimeError(
                f"main_fun gave results named {', '.join(results.schema.names)}; before they were "
                f"{', '.join(self._schema.names)}: give the same names for every batch"
            )
        columns = []
        for field, column in zip(self._schema, results.columns, strict=True):
            try:
                same = column.type.equals(field.type)
                columns.append(column if same else feed_values.exactly(column, field.type).cast(field.type))
            except feed_arrow.Unfit as e:
                raise RuntimeError(
                    f"main_fun gave {column.type} as {field.name}, after {field.type}: cast all to one type ({e})"
                ) from None
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise RuntimeError(
                    f"main_fun gave {column.type} as {field.name}, after {field.type}: give all of one type and shape"
                ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _send(self, results: Any) -> None:
        """Sends results to the producers that wait for them, as soon as a piece is complete."""
        import pyarrow as pa

        done = 0
        while done < results.num_rows:
            piece = self._reader.pieces[0]
            size = piece.end - piece.begin
            n = min(size - self._begun, results.num_rows - done)
            self._columns.append(results.slice(done, n))
            done, self._begun = done + n, self._begun + n
            if self._begun < size:
                continue
            whole = pa.Table.from_batches(self._columns).combine_chunks().to_batches()[0]
            self._columns, self._begun = [], 0
            self._reader.pieces.popleft()
            self._write(piece.feed, piece.number, piece.begin, whole)

    def _write(self, feed: int, piece: int, begin: int, results: Any) -> None:
        """Writes results into slots, as the holder grants them."""
        try:
            link, memory = self._connected()
            for part in _parts(results, memory.slot_size):
                link.send("slot")
                slot = int(link.receive()["slot"])
                size = _put(part, memory.slot(slot))
                end = begin + part.num_rows
                link.send("put", feed=feed, piece=piece, begin=begin, end=end, slot=slot, bytes=size)
                begin = end
        except Stopped as e:
            raise RuntimeError(f"the feed failed: {e.reason or 'it has ended, so no more results are taken'}") from None
        except Refused as e:
            raise RuntimeError(f"results of main_fun: {e}") from None

    def _connected(self) -> tuple[Link, Memory]:
        if self._link is None or self._memory is None:
            path, key = self._reader.address
            self._link = Link(path)
            self._link.send("answer", key=key)
            self._memory = self._link.memory(self._link.receive(), writable=True)
        return self._link, self._memory


def batch_of(values: Any, wrong: Any) -> Any:
    """Returns results as a record batch; wrong(results, records) is the error if columns differ in length."""
    import pyarrow as pa

    if isinstance(values, list | tuple) and values and all(isinstance(row, Mapping) for row in values):
        names = list(values[0])
        for i, row in enumerate(values):
            if unlike := set(names) ^ set(row):
                raise RuntimeError(
                    f"main_fun gave results of different names: of record 0 and record {i} of a batch, one alone has "
                    f"{', '.join(sorted(map(str, unlike)))}; give each result the same names"
                )
        values = {name: [row[name] for row in values] for name in names}
    if not isinstance(values, Mapping):
        values = {PREDICTION: values}
    if not values:
        raise RuntimeError(
            "main_fun gave an empty dict of results: give a name and an array or list for each kind of result"
        )
    fields, columns = [], []
    for name, each in values.items():
        column, shape = _column(str(name), each)
        if columns and len(column) != len(columns[0]):
            raise wrong(len(column), len(columns[0]))
        # the shape of a record, if it has one: the column is flat
        metadata = {"shape": json.dumps(shape)} if shape is not None else None
        fields.append(pa.field(str(name), column.type, metadata=metadata))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _column(name: str, values: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Returns results of one name as an Arrow array in its own memory; and their shape if all have one."""
    import numpy as np
    import pyarrow as pa

    if isinstance(values, list | tuple):
        column = _objects(name, list(values))
        try:
            feed_arrow.fitted(column, [])
        except feed_arrow.Unfit:
            return column, None  # lists of different lengths
        if feed_arrow.family(column.type) in ("text", "bytes"):
            return column, None
        array = feed_columns.array_of(column)
    else:
        array = np.array(values)
    if array.ndim == 0:
        raise RuntimeError(
            f"main_fun gave one {type(values).__name__} as {name}: give an array or a list, with one entry "
            "for each record"
        )
    if array.dtype.kind == "V" and array.dtype.names is None:  # bfloat16 and the like
        array = array.astype(np.float32)
    if array.dtype.kind in "OSU":
        return _objects(name, array.tolist()), None
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise RuntimeError(
            f"main_fun gave {array.dtype} as {name}: cast results to numbers, strings, bytes, or arrays of these"
        )
    flat = pa.array(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(-1))
    if array.ndim == 1:
        return flat, ()
    return feed_arrow.in_lists(flat, _size_of_record(array.shape), len(array)), array.shape[1:]


def _size_of_record(shape: Sequence[int]) -> int:
    """Returns the number of values of a record, from the shape of an array of records."""
    return math.prod(shape[1:])


def _objects(name: str, values: list[Any]) -> Any:
    """Returns results of Python's types as an Arrow array. Its lists may have different lengths."""
    import numpy as np

    values = [np.asarray(v) if hasattr(v, "__array__") and not isinstance(v, np.generic) else v for v in values]
    if len({v.shape for v in values if isinstance(v, np.ndarray)}) > 1:  # rows of different lengths
        values = [v.tolist() if isinstance(v, np.ndarray) else v for v in values]
    try:
        column = feed_values.of_objects(values)
    except feed_arrow.Unfit as e:
        if str(e) == feed_arrow.NULL:
            raise RuntimeError(f"main_fun gave None as {name}: give one result for each record") from None
        raise RuntimeError(
            f"main_fun gave results as {name} that have no common type ({e}): cast them to one"
        ) from None
    if not feed_arrow.family(column.type):
        raise RuntimeError(
            f"main_fun gave {type(values[0]).__name__} as {name}: "
            "cast results to numbers, strings, bytes, or arrays of these"
        )
    return column
