"""Records of an RDD as Arrow record batches, and the stage that delivers them.

Spark's executors have no package tfcluster: this module is pickled by value together with feed_link and
feed_source, and imports the standard library, NumPy, pyarrow and pyspark alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tfcluster import feed_arrow, feed_values
from tfcluster.feed_source import Order, Refused, delivered

_BATCH = 1000  # records of a batch


class Form(NamedTuple):
    """The form of the records of an RDD, as its first record shows it."""

    kind: str  # tuple | dict | value
    size: int  # values of a tuple
    names: tuple[str, ...]  # of the columns; "" of a value
    keys: tuple[Any, ...]  # of the columns in a record: positions or the dict's keys; None: the record is the value
    types: tuple[Any, ...]  # of the columns


def form_of(record: Any) -> Form:
    """Returns the form of a record; raises ValueError if it cannot be fed."""
    if isinstance(record, tuple):
        names = getattr(record, "__fields__", None) or getattr(record, "_fields", None)  # a Row of Spark, a namedtuple
        names = names or [f"_{n + 1}" for n in range(len(record))]  # as toDF names them
        kind, keys = "tuple", tuple(range(len(record)))
    elif isinstance(record, Mapping):
        kind, keys, names = "dict", tuple(record), tuple(map(str, record))
    else:
        kind, keys, names = "value", (None,), [""]
    values = [record if key is None else record[key] for key in keys]
    types = tuple(_type(name, value) for name, value in zip(names, values, strict=True))
    return Form(kind, len(values), tuple(names), keys, types)


def _type(name: str, value: Any) -> Any:
    """Returns the Arrow type of a value and of values like it."""
    try:
        kind = feed_values.of_objects([value]).type
    except feed_arrow.Unfit as e:
        if str(e) == feed_arrow.NULL:
            raise feed_arrow.Unfit(0, f"column {name!r}, row 0: {e}") from None
        raise ValueError(f"a value of type {type(value).__name__}") from None
    if not feed_arrow.family(kind):
        raise ValueError(f"a value of type {type(value).__name__}")
    return kind


def batches(records: Iterable[Any], form: Form, partition: int) -> Iterator[Any]:
    """Yields the records as record batches; raises Refused if one is not like the first of the RDD."""
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
                columns.append(feed_values.of_objects(values, kind))
            except feed_arrow.Unfit as e:
                raise Refused(
                    f"column {name!r}, partition {partition}, row {row + e.row}: {e}"
                    + (
                        ""
                        if str(e) == feed_arrow.NULL
                        else f"; in the first record of DATA it is {kind}: cast all to one type"
                    )
                ) from None
        yield pa.RecordBatch.from_arrays(columns, names=list(form.names))
        row += len(chunk)


def _other(record: Any, form: Form) -> str | None:
    """Returns a record's difference from the form, as a verb and its object; None if there is none."""
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


def rdd_stage(order: Order, epoch: int, form: Form) -> Any:
    """Returns the function for mapPartitionsWithIndex: it delivers a partition and yields the outcome."""

    def run(partition: int, records: Iterable[Any]) -> Iterator[Any]:
        yield tuple(delivered(order, epoch, batches(records, form, partition)))

    return run
