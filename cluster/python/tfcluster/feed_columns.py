"""Columns of a record batch as NumPy arrays, without a copy if their memory allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfcluster import feed_arrow

Columns = dict[str, Any]  # arrays by column, of one length
Form = dict[str, tuple[str, tuple[int, ...]]]  # type and shape of a record's values, by column


def arrays(batch: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a batch as arrays by name, with the plan's --binary and --cast.

    Arrays of numbers refer to the batch's memory, except bool and values that --cast converts.
    """
    import numpy as np

    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        binary = (plan.get("binary") or {}).get(name)
        if binary:
            found[name] = _binary(column, np.dtype(binary["dtype"]), tuple(binary["shape"]))
        else:
            found[name] = array_of(column)
        if cast := plan.get("cast"):
            found[name] = _cast(found[name], np.dtype(cast))
    return found


def _cast(values: Any, dtype: Any) -> Any:
    """Returns floating-point values in another type; other values as they are."""
    return values.astype(dtype) if values.dtype.kind == "f" else values


def array_of(column: Any) -> Any:
    """Returns a column as an array; lists of equal length, or of a fixed size, are its further dimensions."""
    import numpy as np

    shape = [len(column)]
    while feed_arrow.is_list(column.type):
        inner, fixed = column.flatten(), getattr(column.type, "list_size", None)
        shape.append(fixed if fixed is not None else len(inner) // len(column) if len(column) else 0)
        column = inner
    if feed_arrow.family(column.type) in ("text", "bytes"):
        flat = np.empty(len(column), dtype=object)
        flat[:] = column.to_pylist()
    elif feed_arrow.family(column.type) == "bool":
        flat = column.to_numpy(zero_copy_only=False)
    else:
        flat = column.to_numpy(zero_copy_only=True)
    return flat.reshape(shape)


def _binary(column: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Returns bytes of equal length as an array of records with this type and shape."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(column.type):
        begin, data = column.offset * column.type.byte_width, column.buffers()[1]
    else:
        wide = pa.types.is_large_binary(column.type)
        offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if wide else np.int32)
        begin, data = int(offsets[column.offset]), column.buffers()[2]
    count = len(column) * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, dtype=dtype, count=count, offset=begin).reshape((len(column), *shape))


def concatenated(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns one array for each column of several parts; a single part is returned as it is."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def cut(columns: Mapping[str, Any], begin: int, end: int) -> dict[str, Any]:
    """Returns rows [begin, end) of the columns, as views."""
    return {name: values[begin:end] for name, values in columns.items()}


def form(columns: Mapping[str, Any]) -> Form:
    """Returns the form of the records."""
    return {name: (values.dtype.name, tuple(values.shape[1:])) for name, values in columns.items()}


def rows(columns: Mapping[str, Any]) -> int:
    """Returns the number of rows."""
    return len(next(iter(columns.values()))) if columns else 0


def owned(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns as writable arrays with memory of their own. Arrays that have it are not copied."""
    import numpy as np

    def own(values: Any) -> Any:
        return values if values.flags.owndata and values.flags.writeable else np.array(values)

    return {name: own(values) for name, values in columns.items()}


def copied(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns copies of the columns. Text is not copied, because no program writes into it."""
    import numpy as np

    return {name: values if values.dtype == object else np.array(values) for name, values in columns.items()}
