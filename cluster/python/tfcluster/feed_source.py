"""A producer: it delivers the record batches of one partition to a holder, exactly once.

Spark's executors have no package tfcluster: this module is pickled by value together with feed_link and
feed_arrow, and imports the standard library, NumPy, pyarrow and pyspark alone.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfcluster import feed_arrow
from tfcluster.feed_link import FAULT, Carried, Link, Stopped

Order = Mapping[str, Any]  # feed, key, holders, route: where to deliver, see magics/feeding

_AHEAD = 2  # slots that a producer asks for before it has filled one


class Refused(Exception):
    """A record that cannot be fed. The text names the record and the remedy."""


def deliver(
    order: Order,
    epoch: int,
    partition: int,
    attempt: int,
    batches: Iterable[Any],
    nan: collections.Counter[str] | None = None,
    *,
    once: bool = False,
) -> int:
    """Delivers a partition; returns the number of records delivered by all attempts.

    Raises Stopped if the holder does not take all of them.

    nan: gets the number of NaN of each column.
    once: there is no other attempt, which would need a digest of the records.
    """
    stream = checked(order, partition, batches, nan)
    first = next(stream, None)
    digest = "" if first is None else _digest(first)
    link = _connect(order, partition)
    try:
        link.send(
            "produce",
            feed=order["feed"],
            key=order["key"],
            epoch=epoch,
            partition=partition,
            attempt=attempt,
            digest=digest,
        )
        lease = link.receive()
        memory = link.memory(lease, writable=True)
        try:
            if lease.get("complete"):
                return int(lease.get("skip") or 0)
            return _write(link, memory, lease, first, stream, None if once else Records())
        finally:
            memory.close()
    finally:
        link.close()


def _connect(order: Order, partition: int) -> Link:
    """Connects to a holder on this host: the first if the order demands it, otherwise partitions take turns.

    Without such a holder, the driver carries the connection to another host. Raises Stopped if there is no
    route to the driver, or it cannot be reached.
    """
    holders = [h["socket"] for h in order["holders"]]
    at = 0 if order.get("first") else partition % len(holders)
    for path in holders[at:] + holders[:at]:
        if os.path.exists(path):
            with contextlib.suppress(OSError):
                return Link(path)
    route = order.get("route")
    if not route:
        raise Stopped(
            f"no executor of the cluster is on {socket.gethostname()}, where DATA is read, and there is no route to "
            "another: shut the cluster down and reserve it again"
        )
    try:
        return Carried(route)
    except OSError as e:
        raise Stopped(
            f"no executor of the cluster is on {socket.gethostname()}, which does not reach the driver at "
            f"{route['address']} ({e}): reserve with --advertise HOST, a name of the driver's host that is known there"
        ) from None


def _write(
    link: Link, memory: Any, lease: Mapping[str, Any], first: Any, rest: Iterator[Any], seen: Records | None
) -> int:
    """Writes batches into slots as the holder grants them; returns the number of records that it has then."""
    granted: deque[dict[str, Any]] = deque()
    for _ in range(_AHEAD):
        link.send("slot")
    rows = skip = int(lease.get("skip") or 0)
    for batch in _after(skip, first, rest, seen, str(lease.get("digest") or "")):
        while batch.num_rows:
            if not granted:
                granted.append(_expect(link, "slot"))
            slot = granted.popleft()
            count = _fitting(batch, memory.slot_size, rows, int(slot.get("batch") or 0))
            part = batch.slice(0, count)
            size = _put(part, memory.slot(slot["slot"]))
            digest = seen.add(part) if seen is not None else ""
            link.send("put", slot=slot["slot"], bytes=size, rows=count, digest=digest)
            link.send("slot")
            batch, rows = batch.slice(count), rows + count
    link.send("done")
    while True:
        message = link.receive()
        if message["op"] == "done":
            return int(message["rows"])


def _expect(link: Link, op: str) -> dict[str, Any]:
    message = link.receive()
    if message["op"] != op:
        raise Refused(f"the executor's agent answered {message['op']!r} instead of {op!r}; {FAULT}")
    return message


def _after(skip: int, first: Any, rest: Iterator[Any], seen: Records | None = None, digest: str = "") -> Iterator[Any]:
    """Yields the batches without the first skip records, which an earlier attempt delivered.

    Raises Refused if these records do not have this digest, or there are fewer.
    """
    batch, left = first, skip
    while batch is not None:
        if left and seen is not None:
            found = seen.add(batch.slice(0, min(left, batch.num_rows)))
            if seen.rows == skip and digest not in ("", found):
                raise Refused(
                    f"a partition was computed again in another order: {skip:,} of its records were delivered before, "
                    "and are not its first ones now; make the DataFrame's order certain (sort or checkpoint it), "
                    "then run the cell again"
                )
        if left < batch.num_rows:
            yield batch.slice(left) if left else batch
        left -= min(left, batch.num_rows)
        batch = next(rest, None)
    if left:
        raise Refused(
            f"a partition was computed again and has {left} records fewer than were delivered before; "
            "make the DataFrame's order certain (sort or checkpoint it), then run the cell again"
        )


_FRAME = 512  # bytes of a stream besides its schema and its batch: lengths, padding, the end


def _parts(batch: Any, room: int) -> Iterator[Any]:
    """Yields the batch in parts that fit a slot."""
    while batch.num_rows:
        count = _fitting(batch, room)
        yield batch.slice(0, count)
        batch = batch.slice(count)


def _fitting(batch: Any, room: int, before: int = 0, unit: int = 0) -> int:
    """Returns the number of records of a batch that fit a slot.

    If the batch must be cut, they end a unit of the partition if possible; before is the number of earlier
    records.
    """
    import pyarrow as pa

    frame = batch.schema.serialize().size + _FRAME
    count = int(batch.num_rows)
    while (size := pa.ipc.get_record_batch_size(batch.slice(0, count)) + frame) > room:
        if count == 1:
            raise Refused(
                f"a record has {size:,} bytes, a slot of the shared memory {room:,}: "
                f"reserve with --feed-memory {(size * 8 >> 20) + 1}m"
            )
        count = max(1, min(count - 1, count * room // size))
    over = (before + count) % unit if unit and count < batch.num_rows else 0
    return count - over if over < count else count


def _put(batch: Any, slot: memoryview) -> int:
    """Writes a batch into a slot as an Arrow IPC stream; returns its length in bytes."""
    import pyarrow as pa

    out = pa.FixedSizeBufferWriter(pa.py_buffer(slot))
    try:
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        return int(out.tell())
    finally:
        out.close()


class Records:
    """A digest of records and their order. It reads one record in _each: a hundredth of the delivery's cost.

    A shuffle gives the records of a partition in the order in which blocks arrive, so another attempt has
    other records at nearly all places after the first block that differs.
    """

    _each = 32

    def __init__(self) -> None:
        self.rows = 0
        self._sums: list[Any] = []  # of the columns

    def add(self, batch: Any) -> str:
        """Adds the next records; returns the digest of all so far, however they are cut into batches."""
        import pyarrow as pa

        places = range(-self.rows % self._each, batch.num_rows, self._each)
        self.rows += batch.num_rows
        self._sums = self._sums or [hashlib.sha256() for _ in batch.columns]
        if places:
            for column, total in zip(batch.take(pa.array(places, pa.int64())).columns, self._sums, strict=True):
                for part in _content(column):
                    total.update(part)
        return hashlib.sha256(b"".join(s.digest() for s in self._sums)).hexdigest()[:32]


def _content(column: Any) -> Iterator[Any]:
    """Yields the values of a column as bytes. The column has no NULL, and its lists are of equal length."""
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    while any(is_list(column.type) for is_list in lists):
        column = column.flatten()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    try:
        width = column.type.bit_width // 8
    except ValueError:  # strings and bytes
        for value in column.to_pylist():
            data = value.encode() if isinstance(value, str) else value
            yield len(data).to_bytes(8, "little")
            yield data
        return
    yield memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]


def _digest(batch: Any) -> str:
    """Returns a digest of the first record of a batch."""
    import pyarrow as pa

    row = pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in batch.slice(0, 1).columns], schema=batch.schema)
    return hashlib.sha256(row.serialize()).hexdigest()


def checked(
    order: Order, partition: int, batches: Iterable[Any], nan: collections.Counter[str] | None = None
) -> Iterator[Any]:
    """Yields the batches that have records, as they are fed; raises Refused if one cannot be fed.

    nan gets the number of NaN of each column.
    """
    import pyarrow as pa

    widths: dict[str, list[int]] = collections.defaultdict(list)
    row = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        columns, given = [], batch.columns
        for name, column in zip(batch.schema.names, given, strict=True):
            try:
                columns.append(_fitted(order, name, column, widths[name]))
            except feed_arrow.Unfit as e:
                raise Refused(f"column {name!r}, partition {partition}, row {row + e.row}: {e}") from None
            if nan is not None and (count := feed_arrow.count_nan(columns[-1])):
                nan[name] += count
        same = all(one is other for one, other in zip(columns, given, strict=True))
        yield batch if same else pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        row += batch.num_rows


def _fitted(order: Order, name: str, column: Any, widths: list[int]) -> Any:
    """Returns a column as it is fed; raises Unfit if it violates the verb's --binary or --nan."""
    column = feed_arrow.fitted(column, widths)
    if binary := (order.get("binary") or {}).get(name):
        feed_arrow.check_binary(column, binary, name)
    if order.get("nan") == "refuse":
        feed_arrow.refuse_nan(column)
    return column


def spark_stage(order: Order, epoch: int, names: Sequence[str]) -> Any:
    """Returns the function for mapInArrow, which delivers a partition with the columns under these names.

    It yields one row with the outcome.
    """

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        named = (pa.RecordBatch.from_arrays(batch.columns, names=list(names)) for batch in batches)
        yield pa.RecordBatch.from_pylist([delivered(order, epoch, named)._asdict()])

    return run


class Delivered(NamedTuple):
    """The outcome of the delivery of a partition."""

    partition: int
    rows: int
    whole: bool
    refused: str = ""
    stopped: str = ""  # why the partition was not taken whole; "" also if no program wants more
    nan: str = ""  # JSON: the number of NaN of each column


def delivered(order: Order, epoch: int, batches: Iterable[Any]) -> Delivered:
    """Delivers the partition of the running task of Spark; returns the outcome."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError(f"this part of tfcluster runs in a task of Spark, and this is none; {FAULT}")
    partition, attempt = context.partitionId(), context.taskAttemptId()
    nan: collections.Counter[str] = collections.Counter()
    try:
        rows = deliver(order, epoch, partition, attempt, batches, nan)
        return Delivered(partition, rows, True, nan=json.dumps(nan))
    except Refused as e:  # returned: Spark would try again after an exception, and hide it in its own
        return Delivered(partition, 0, False, refused=str(e))
    except Stopped as e:
        return Delivered(partition, 0, False, stopped=e.reason)


SPARK_SCHEMA = "partition long, rows long, whole boolean, refused string, stopped string, nan string"
