"""The values of Spark's rows as features of tf.train.Example, and back.

Spark pickles this module by value: it imports NumPy, pyarrow, and modules that are pickled with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfcluster import tfexample
from tfcluster.tfexample import BYTES, FLOAT, INT64, Feature

# Spark's names of types as DataFrame.dtypes has them, by the kind of a feature.
_KINDS = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint", "long"), INT64),
    **dict.fromkeys(("float", "double"), FLOAT),
    **dict.fromkeys(("string", "binary"), BYTES),
}
_ARROW = {"boolean": "bool", "tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64", "long": "int64"}
_DTYPE = re.compile(r"(array<)?(\w+)(?:\(\d+\)| collate \w+)?(?(1)>)")  # char(2), string collate UNICODE


class Column(NamedTuple):
    """A column of a DataFrame: of type base, or of arrays of it."""

    name: str
    base: str
    many: bool

    @property
    def kind(self) -> str:
        """The kind of its features."""
        return _KINDS[self.base]

    @property
    def dtype(self) -> str:
        """Spark's name of its type."""
        return f"array<{self.base}>" if self.many else self.base


class RowError(ValueError):
    """A value that has no place in a feature or in a column: it stays wrong however often a task is tried."""


def columns(dtypes: Iterable[tuple[str, str]]) -> list[Column]:
    """Returns the columns of DataFrame.dtypes. Raises RowError for a type that no feature has."""
    found: list[Column] = []
    for name, dtype in dtypes:
        parts = _DTYPE.fullmatch(dtype)
        base = parts[2].replace("varchar", "string").replace("char", "string") if parts else ""
        if parts is None or base not in _KINDS:
            raise RowError(
                f"column {name!r} is of type {dtype}, which tf.train.Example does not have: cast it to a number, "
                "boolean, string, binary, or an array of one of these, or drop it"
            )
        if any(name == other.name for other in found):
            raise RowError(f"two columns have the name {name!r}, and features have distinct names: rename one")
        found.append(Column(name, base, bool(parts[1])))
    return found


# -------------------------------------------------------------------- to Examples


def row_example(row: Any, of: Sequence[Column], number: int) -> bytes:
    """Returns a Row as a tf.train.Example; number is the row's in errors."""
    return tfexample.encoded({column.name: _feature(column, row[column.name], number) for column in of})


def batch_examples(batch: Any, of: Sequence[Column], number: int) -> Iterator[bytes]:
    """Yields the rows of a record batch as tf.train.Examples; number is the first row's in errors."""
    features = [_features(column, batch.column(at), number) for at, column in enumerate(of)]
    names = [column.name for column in of]
    if not names:  # rows without columns
        yield from [tfexample.encoded({})] * batch.num_rows
    for row in zip(*features, strict=True):
        yield tfexample.encoded(dict(zip(names, row, strict=True)))


def _features(column: Column, array: Any, number: int) -> Iterator[bytes]:
    if column.many and column.kind != BYTES and not array.null_count and not array.values.null_count:
        flat = array.values.to_numpy(zero_copy_only=False)
        ends = array.offsets.to_pylist()
        for start, stop in zip(ends, ends[1:], strict=False):
            yield tfexample.feature_bytes(column.kind, flat[start:stop])
        return
    for at, value in enumerate(array.to_pylist()):
        yield _feature(column, value, number + at)


def _feature(column: Column, value: Any, number: int) -> bytes:
    if value is None:
        raise RowError(f"row {number}, column {column.name!r}: NULL, which no feature has: {_NULLS}")
    values = value if column.many else [value]
    for at, each in enumerate(values):
        if each is None:
            raise RowError(f"row {number}, column {column.name!r}, element {at}: NULL, which no feature has: {_NULLS}")
    if column.base == "binary":
        values = [bytes(each) for each in values]
    elif column.kind == BYTES:
        values = [str(each).encode() for each in values]
    return tfexample.feature_bytes(column.kind, values)


_NULLS = "fill or drop it (fillna, dropna)"

# -------------------------------------------------------------------- from Examples


def plain(name: str, feature: Feature, binary: Collection[str]) -> Any:
    """Returns a feature's value without a schema: a scalar, a list of more values, or None without any."""
    base = _base(name, feature, binary)
    values = [_read(each, name) for each in feature.values] if base == "string" else list(feature.values)
    if base == "binary":
        values = [bytearray(each) for each in values]
    elif feature.kind in (INT64, FLOAT):
        values = np.asarray(feature.values).tolist()
    return values if len(values) > 1 else values[0] if values else None


def inferred(example: Mapping[str, Feature], binary: Collection[str], by_kind: bool = False) -> list[Column]:
    """Returns the columns of an Example, sorted by name: of arrays where a feature has several values.

    A feature without values is a string, as in TensorFlowOnSpark; with by_kind it is an array of its kind if it has
    one, because only a list can be empty.
    """
    found = []
    for name in sorted(example):
        feature = example[name]
        size = len(feature.values)
        if not size and not (by_kind and feature.kind):
            found.append(Column(name, "binary" if name in binary else "string", False))
        else:
            found.append(Column(name, _base(name, feature, binary), size != 1))
    return found


def _base(name: str, feature: Feature, binary: Collection[str]) -> str:
    if feature.kind in (INT64, FLOAT):
        return "bigint" if feature.kind == INT64 else "double"
    return "binary" if name in binary else "string"


def _read(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as e:
        raise RowError(f"feature {name!r} is no UTF-8 text: name it in binary_features ({e})") from None


def record_batch(examples: Sequence[Mapping[str, Feature]], of: Sequence[Column]) -> Any:
    """Returns Examples as a record batch with these columns; a feature that one lacks is NULL."""
    import pyarrow as pa

    arrays = [_array(column, [example.get(column.name) for example in examples]) for column in of]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in of])


def checked(example: Mapping[str, Feature], of: Mapping[str, Column], only: bool) -> Mapping[str, Feature]:
    """Returns the Example if its features have a place in the columns; with only it has no others."""
    for name, feature in example.items():
        column = of.get(name)
        if column is None:
            if only:
                raise RowError(f"feature {name!r} is not in the first record, which shows the columns: {_SCHEMA}")
            continue
        size = len(feature.values)
        if size and feature.kind != column.kind:
            raise RowError(f"feature {name!r} has values of the kind {feature.kind} for {column.dtype}: {_SCHEMA}")
        if size > 1 and not column.many:
            raise RowError(f"feature {name!r} has {size} values for {column.dtype}: {_SCHEMA}")
        if column.base == "string":
            for value in feature.values:
                _read(value, name)
    return example


_SCHEMA = "name the columns and their types, as in loadTFRecords(…, schema='a array<bigint>, b string')"


def _array(column: Column, features: Sequence[Feature | None]) -> Any:
    """Returns the values of a column as an array of Arrow."""
    import pyarrow as pa

    kind = pa.type_for_alias(_ARROW.get(column.base, column.base))
    there = [feature is not None and bool(feature.kind or len(feature.values)) for feature in features]
    if column.many:
        sizes = [len(feature.values) if ok and feature else 0 for ok, feature in zip(there, features, strict=True)]
        ends = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
        offsets = [end if ok else None for ok, end in zip([*there, True], ends, strict=True)]
        full = [feature.values for feature, size in zip(features, sizes, strict=True) if feature and size]
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _flat(column, full, kind))
    full = [feature.values for feature in features if feature and len(feature.values)]
    flat = _flat(column, full, kind)
    if len(flat) == len(features):
        return flat
    at = iter(range(len(flat)))
    return flat.take(
        pa.array([next(at) if feature and len(feature.values) else None for feature in features], pa.int64())
    )


def _flat(column: Column, lists: Sequence[Any], kind: Any) -> Any:
    import pyarrow as pa

    if column.kind == BYTES:
        return pa.array([value for values in lists for value in values], pa.binary()).cast(kind)
    values = np.concatenate(lists) if lists else np.empty(0, np.int64)
    if column.base == "boolean":
        values = values != 0
    return pa.array(values).cast(kind)
