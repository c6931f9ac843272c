"""Records of an RDD as Arrow record batches, and the stage that delivers them.

Spark's executors have no package tfcluster: this module is pickled by value together with feed_link and feed_source,
and imports the standard library, NumPy, pyarrow and pyspark alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfcluster.feed_source import Order, Refused, delivered

_BATCH = 1000  # records of a batch


class Form(NamedTuple):
    """What the records of an RDD are, as its first one shows it."""

    kind: str  # tuple | dict | value
    size: int  # values of a tuple
    names: tuple[str, ...]  # of the columns; "" of a value
    keys: tuple[Any, ...]  # of the columns in a record: positions or the dict's keys; None: the record is the value
    types: tuple[Any, ...]  # of the columns


def form_of(record: Any) -> Form:
    """The form of a record; ValueError where it cannot be fed."""
    if isinstance(record, tuple):
        names = getattr(record, "__fields__", None) or getattr(record, "_fields", None)  # a Row of Spark, a namedtuple
        names = names or [f"_{n + 1}" for n in range(len(record))]  # as toDF names them
        kind, keys = "tuple", tuple(range(len(record)))
    elif isinstance(record, Mapping):
        kind, keys, names = "dict", tuple(record), map(str, record)
    else:
        kind, keys, names = "value", (None,), [""]
    values = [record if key is None else record[key] for key in keys]
    types = tuple(_type(value) for value in values)
    return Form(kind, len(values), tuple(names), keys, types)


def _type(value: Any) -> Any:
    """The Arrow type of a value and of those like it."""
    import numpy as np
    import pyarrow as pa

    if not isinstance(value, np.ndarray) or not value.ndim:
        try:
            return pa.array([value.item() if isinstance(value, np.ndarray) else value]).type
        except (pa.ArrowException, TypeError):
            raise ValueError(f"a value of type {type(value).__name__}") from None
    try:
        kind = pa.from_numpy_dtype(value.dtype)
    except pa.ArrowException:
        raise ValueError(f"an array of {value.dtype}") from None
    for _ in value.shape:
        kind = pa.list_(kind)
    return kind


def batches(records: Iterable[Any], form: Form, partition: int) -> Iterator[Any]:
    """The records as record batches; Refused where one is not like the first of the RDD."""
    import pyarrow as pa

    source, row = iter(records), 0
    while chunk := list(itertools.islice(source, _BATCH)):
        for n, record in enumerate(chunk):
            if (problem := _other(record, form)) is not None:
                raise Refused(f"partition {partition}, row {row + n} {problem}; give all records the same form")
        columns = []
        for name, key, kind in zip(form.names, form.keys, form.types, strict=True):
            values = chunk if key is None else [record[key] for record in chunk]
            try:
                columns.append(_column(values, kind))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
                raise Refused(
                    f"column {name!r}, partition {partition}, rows {row} to {row + len(chunk) - 1}: {e}; "
                    f"in the first record of DATA it is {kind}: cast all to one type"
                ) from None
        yield pa.RecordBatch.from_arrays(columns, names=list(form.names))
        row += len(chunk)


def _other(record: Any, form: Form) -> str | None:
    """How a record differs from the form, as a verb and its object; None if it does not."""
    if form.kind == "tuple":
        if isinstance(record, tuple) and len(record) == form.size:
            return None
        said = (
            f"tuple of length {len(record)}" if isinstance(record, tuple) else f"value of type {type(record).__name__}"
        )
        return f"is a {said}, but the first record of DATA is a tuple of length {form.size}"
    if form.kind == "dict":
        if not isinstance(record, Mapping):
            return f"is of type {type(record).__name__}, but the first record of DATA is a dict"
        missing = next((key for key in form.keys if key not in record), None)
        return None if missing is None else f"has no {missing!r}, which the first record of DATA has"
    return None


def _column(values: Sequence[Any], kind: Any) -> Any:
    """Values of a column as an Arrow array of a type."""
    import numpy as np
    import pyarrow as pa

    first = values[0]
    if isinstance(first, np.ndarray) and first.ndim and len({np.shape(v) for v in values}) == 1:
        stacked = np.stack(values)
        depth, inner = 0, kind
        while pa.types.is_list(inner):
            depth, inner = depth + 1, inner.value_type
        if stacked.ndim == depth + 1:
            column = pa.array(stacked.reshape(-1).astype(inner.to_pandas_dtype(), casting="same_kind", copy=False))
            for n in range(depth, 0, -1):
                rows, width = int(np.prod(stacked.shape[:n], dtype=np.int64)), stacked.shape[n]
                offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
                column = pa.ListArray.from_arrays(offsets, column)
            return column
    return pa.array([v.tolist() if isinstance(v, np.ndarray) else v for v in values], kind)


def rdd_stage(order: Order, epoch: int, form: Form) -> Any:
    """The function for mapPartitionsWithIndex: each partition is delivered, and yields how it went."""

    def run(partition: int, records: Iterable[Any]) -> Iterator[Any]:
        yield tuple(delivered(order, epoch, batches(records, form, partition)))

    return run
