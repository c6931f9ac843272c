"""Columns of Arrow in the types that are fed, and the checks of their values.

Types that are fed are numbers, bool, text, bytes, and lists of these of equal length and any depth. A NumPy
array of several dimensions has a list of fixed size for each dimension after the first. Spark's executors
have no package tfcluster: this module is pickled by value, and imports the standard library, NumPy and
pyarrow alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

NULL = "NULL; fill or drop it (fillna, dropna)"


class Unfit(ValueError):
    """A value that cannot be fed in its column."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


# -------------------------------------------------------------------- types


def is_list(kind: Any) -> bool:
    """Reports whether a type is a list of variable or fixed size."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def item(kind: Any) -> Any:
    """Returns the type of the values in lists of any depth."""
    while is_list(kind):
        kind = kind.value_type
    return kind


def family(kind: Any) -> str:
    """Returns the family of a type, or of its lists' values: bool, int, float, text, bytes; "" for others."""
    import pyarrow as pa

    kind = item(kind)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    of_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return "bytes" if any(check(kind) for check in of_bytes) else ""


def depth(kind: Any) -> int:
    """Returns the number of nested lists around the values."""
    return 1 + depth(kind.value_type) if is_list(kind) else 0


def plain_type(kind: Any) -> Any:
    """Returns the type that fitted makes of a column.

    A dictionary has the type of its values, a view the type that it views, a tensor that of lists.
    """
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.bool8":
            return pa.bool_()
        if (shape := _tensor_shape(kind)) is None:
            return kind
        inner = item(kind.storage_type)
        for size in reversed(shape):
            inner = pa.list_(inner, size)
        return inner
    if pa.types.is_dictionary(kind) or _is(kind, "is_run_end_encoded"):
        return plain_type(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind) or _is(kind, "is_large_list_view"):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_list(kind) or _is(kind, "is_list_view"):
        return pa.list_(plain_type(kind.value_type))
    if _is(kind, "is_string_view"):
        return pa.large_string()
    return pa.large_binary() if _is(kind, "is_binary_view") else kind


def _is(kind: Any, check: str) -> bool:
    """Makes a check of pyarrow.types; returns False in older versions, which lack the check and the type."""
    import pyarrow as pa

    return bool(getattr(pa.types, check, lambda kind: False)(kind))


def _tensor_shape(kind: Any) -> tuple[int, ...] | None:
    """Returns the shape of Arrow's tensors with values in C's order; None for other types."""
    if kind.extension_name != "arrow.fixed_shape_tensor" or kind.permutation not in (None, [*range(len(kind.shape))]):
        return None
    return tuple(kind.shape)


# ----------------------------------------------------------------- of Arrow


def fitted(column: Any, widths: list[int]) -> Any:
    """Returns an Arrow array as it is fed, without a copy if possible.

    Raises Unfit if a value is NULL or a list has another length. widths are the lengths of lists by depth;
    the first of several columns sets them.
    """
    return _fitted(column, widths, 0, lambda at: at)


def _fitted(column: Any, widths: list[int], depth: int, row_of: Callable[[int], int]) -> Any:

    _no_null(column, row_of)
    column = _decoded(column)
    _no_null(column, row_of)
    if not is_list(column.type):
        return column
    size = getattr(column.type, "list_size", None)  # of a list of fixed size
    if depth == len(widths) and (size is not None or len(column)):
        widths.append(column.value_lengths()[0].as_py() if size is None else size)
    width = widths[depth] if depth < len(widths) else 0
    if (at := _other_length(column, size, width)) is not None:
        raise Unfit(
            row_of(at),
            f"an array of {len(column[at])} values, {width} in the rows before; all must have the same length: "
            "pad or cut them",
        )
    inner = column.flatten()
    plain = _fitted(inner, widths, depth + 1, lambda at: row_of(at // width))
    return column if plain is inner else in_lists(plain, width, len(column))


def _other_length(column: Any, size: int | None, width: int) -> int | None:
    """Returns the index of the first list of another length than width, or None; size is a fixed list's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(column) or size == width:
        return None
    if size is not None:
        return 0
    lengths = column.value_lengths()
    at = pc.index(pc.equal(lengths, pa.scalar(width, lengths.type)), pa.scalar(False)).as_py()
    return None if at < 0 else int(at)


def _no_null(column: Any, row_of: Callable[[int], int]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise Unfit(row_of(pc.index(column.is_null(), pa.scalar(True)).as_py()), NULL)


def _decoded(column: Any) -> Any:
    """Returns a column with its values decoded."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    while True:
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            if kind.extension_name == "arrow.bool8":
                return column.storage.cast(pa.bool_())
            shape = _tensor_shape(kind)
            return column if shape is None else of_shape(column.storage.flatten(), (len(column), *shape))
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
        elif _is(kind, "is_run_end_encoded"):
            column = pc.run_end_decode(column)
        elif _is(kind, "is_string_view"):
            return column.cast(pa.large_string())
        elif _is(kind, "is_binary_view"):
            return column.cast(pa.large_binary())
        elif _is(kind, "is_list_view") or _is(kind, "is_large_list_view"):  # Arrow's cast loses values of some
            large = _is(kind, "is_large_list_view")
            sizes = np.asarray(column.sizes)[: len(column)]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64 if large else np.int32)
            return (pa.LargeListArray if large else pa.ListArray).from_arrays(pa.array(offsets), column.flatten())
        else:
            return column


def in_lists(flat: Any, width: int, rows: int) -> Any:
    """Returns values as lists of one width."""
    import pyarrow as pa

    if width:
        return pa.FixedSizeListArray.from_arrays(flat, width)
    return pa.Array.from_buffers(pa.list_(flat.type, 0), rows, [None], children=[flat])


def of_shape(flat: Any, shape: Sequence[int]) -> Any:
    """Returns values as an array of shape[0] records, with lists of fixed size for the other dimensions."""
    for depth in range(len(shape) - 1, 0, -1):
        rows = 1
        for size in shape[:depth]:
            rows *= size
        flat = in_lists(flat, shape[depth], rows)
    return flat


# ------------------------------------------------------------------- checks


def check_binary(column: Any, binary: Mapping[str, Any], name: str) -> None:
    """Raises Unfit if a column is not of bytes, or a value has another length than --binary gives."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if family(column.type) != "bytes" or is_list(column.type):
        raise Unfit(0, f"it is {column.type}, but --binary {name}:{binary['text']} is for bytes")
    lengths = pc.binary_length(column)
    same = pc.equal(lengths, pa.scalar(binary["bytes"], lengths.type))
    if len(column) and not pc.all(same).as_py():
        at = pc.index(same, pa.scalar(False)).as_py()
        raise Unfit(at, f"{lengths[at].as_py()} bytes, but --binary {name}:{binary['text']} has {binary['bytes']}")


def count_nan(column: Any) -> int:
    """Returns the number of NaN in a fitted column.

    Most columns have none. Their sum shows that at the speed of memory.
    """
    import numpy as np

    flat = _floats(column)
    with np.errstate(all="ignore"):
        return int(np.isnan(flat).sum()) if len(flat) and np.isnan(np.sum(flat)) else 0


def refuse_nan(column: Any) -> None:
    """Raises Unfit at the first NaN of a fitted column."""
    import numpy as np

    if count_nan(column):
        flat = _floats(column)
        raise Unfit(int(np.argmax(np.isnan(flat))) // (len(flat) // len(column)), "NaN, and --nan is refuse")


def _floats(column: Any) -> Any:
    """Returns the numbers of a column of floats; an empty array for other types."""
    import numpy as np

    if family(column.type) != "float":
        return np.empty(0)
    while is_list(column.type):
        column = column.flatten()
    return column.to_numpy(zero_copy_only=False)
