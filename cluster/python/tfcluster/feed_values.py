"""Values of NumPy and Python as Arrow arrays: exactly, or not at all.

Spark's executors have no package tfcluster: this module is pickled by value together with feed_arrow, and
imports the standard library, NumPy and pyarrow alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tfcluster.feed_arrow import NULL, Unfit, depth, family, fitted, is_list, item, of_shape


def of_numpy(values: Any) -> Any:
    """Returns an array of NumPy as an array of Arrow. The first dimension is that of records.

    Raises Unfit if a value is masked, or an object is not like the others. The result refers to the array's
    memory if that is in C's order and the machine's byte order.
    """
    import numpy as np
    import pyarrow as pa

    if isinstance(values, np.ma.MaskedArray):
        if (mask := np.ma.getmaskarray(values)).any():
            raise Unfit(int(np.argwhere(mask)[0][0]), NULL)
        values = values.data
    width = values[0].size if values.ndim > 1 and len(values) else 1
    if values.dtype.kind in "OSU":  # pa.array cuts those of NumPy's own types at their first NUL
        flat = _of_own(values, width)
    else:
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        flat = pa.array(values.reshape(-1))
    return of_shape(flat, values.shape)


def _of_own(values: Any, width: int) -> Any:
    """Returns the values of an array of text, bytes or objects as a flat one. A record has width values."""
    import pyarrow as pa

    if not values.size and values.dtype.kind in "SU":
        return pa.array([], pa.binary() if values.dtype.kind == "S" else pa.string())
    try:
        return of_objects(values.reshape(-1).tolist())
    except Unfit as e:
        raise Unfit(e.row // width, str(e)) from None


def of_objects(values: Sequence[Any], kind: Any = None) -> Any:
    """Returns objects of Python as an array of kind, otherwise of the first type that takes all exactly.

    Raises Unfit with the first object that does not fit: None, another kind of value, another shape, a number
    that would change.
    """
    import numpy as np

    if any(isinstance(v, np.ndarray) and not v.ndim for v in values):
        values = [v.item() if isinstance(v, np.ndarray) and not v.ndim and not _missing(v) else v for v in values]
    column = _stacked(values) if any(isinstance(v, np.ndarray) for v in values) else _typed(_inferred(values))
    return column if kind is None else exactly(column, kind, values)


def _typed(column: Any) -> Any:
    """Returns a column; if it has no value and so no type, as floats, like an empty array of NumPy."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_null(item(column.type)):
        return column
    fitted(column, [])  # Unfit where a list has a NULL
    return of_numpy(np.empty((len(column), *(0 for _ in range(depth(column.type))))))


_MISSING = ("NoneType", "NAType", "NaTType", "MaskedConstant")  # None, and pandas' and NumPy's


def _missing(value: Any) -> bool:
    """Reports whether a value means "no value"."""
    return type(value).__name__ in _MISSING


def _kind_of(value: Any) -> str:
    """Returns the family of a value of Python; "NULL", "list", or the name of its type."""
    import numpy as np

    if _missing(value):
        return "NULL"
    for name, kinds in (
        ("list", (np.ndarray, list, tuple)),
        ("bool", (bool, np.bool_)),
        ("int", (int, np.integer)),
        ("float", (float, np.float16, np.float32, np.float64)),
        ("text", (str,)),
        ("bytes", (bytes, bytearray, memoryview)),
    ):
        if isinstance(value, kinds):
            return name
    return type(value).__name__


def _inferred(values: Sequence[Any]) -> Any:
    """Returns objects other than arrays of NumPy, in the first type that takes all exactly."""
    import pyarrow as pa

    types = set(map(type, values))
    if types & {list, tuple}:
        _no_masks(values)
        types |= {kind for v in values if isinstance(v, list | tuple) for kind in map(type, v)}
    column = None
    try:
        column = pa.array(values, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        with contextlib.suppress(OverflowError):
            if {_kind_of(v) for v in values} == {"int"}:
                column = pa.array(values, pa.uint64())
    if column is None or column.null_count or len(types - {list}) > 1:  # Arrow takes text as bytes, and bool as numbers
        _alike(values)
    if column is None:
        raise Unfit(*_alone(values))
    return column


def _no_masks(values: Sequence[Any]) -> None:
    """Raises Unfit for a list with an array that has masked values: Arrow takes the values below the mask."""
    import numpy as np

    for row, value in enumerate(values):
        if not isinstance(value, list | tuple) or np.ma.MaskedArray not in set(map(type, value)):
            continue
        if any(np.ma.is_masked(each) for each in value):
            raise Unfit(row, NULL)


def _alike(values: Sequence[Any]) -> None:
    """Raises Unfit at the first value that is missing or of another family."""
    import numpy as np

    kinds = [_kind_of(v) for v in values]
    if "text" in kinds:  # pandas has NaN for a missing text
        kinds = ["NULL" if k == "float" and np.isnan(v) else k for k, v in zip(kinds, values, strict=True)]
    if "NULL" in kinds:
        raise Unfit(kinds.index("NULL"), NULL)
    first = kinds[0] if kinds else ""
    for row, kind in enumerate(kinds):
        if kind != first and {kind, first} != {"int", "float"}:
            raise Unfit(row, f"{_short(values[row])} is {kind}, {_short(values[0])} before it is {first}")
    if first == "list" and any(len(v) for v in values):
        ends = np.cumsum([len(v) for v in values])
        try:
            _alike([each for v in values for each in v])
        except Unfit as e:
            raise Unfit(int(np.searchsorted(ends, e.row, "right")), str(e)) from None


def _alone(values: Sequence[Any]) -> tuple[int, str]:
    """Returns the row of the first value that Arrow does not take, and a description of it."""
    import pyarrow as pa

    for row, value in enumerate(values):
        try:
            pa.array([value], pa.uint64() if _kind_of(value) == "int" and value > 0 else None, from_pandas=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            return row, f"{_short(value)} is of type {type(value).__name__}" + (
                f" ({e})" if isinstance(e, UnicodeError | OverflowError) else ""
            )
    return 0, "its values have no type in common that holds them exactly"


def _short(value: Any) -> str:
    """Returns a value's repr for a message, shortened."""
    text = repr(value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value)
    return text if len(text) <= 40 else text[:37] + "…"


def _stacked(values: Sequence[Any]) -> Any:
    """Returns arrays of one shape as an array of Arrow, in a type that takes theirs exactly; otherwise Unfit.

    Lists may be among them.
    """
    import numpy as np

    arrays: list[Any] = []
    for row, value in enumerate(values):
        if _missing(value):
            raise Unfit(row, NULL)
        try:
            of_list = of_objects(value).to_numpy(zero_copy_only=False) if isinstance(value, list | tuple) else value
        except Unfit as e:
            raise Unfit(row, str(e)) from None
        array = np.asanyarray(of_list)
        if arrays and array.shape != arrays[0].shape:
            raise Unfit(
                row,
                f"{_shaped(array)}, {_shaped(arrays[0])} in the rows before; all must have the same shape: "
                "pad or cut them",
            )
        arrays.append(array)
    types = {array.dtype.newbyteorder("=") for array in arrays}
    numbers = [array.dtype.kind in "iuf" for array in arrays]
    for row, array in enumerate(arrays):
        if array.dtype.kind not in "biufSUO" or array.dtype.kind == "f" and array.dtype.itemsize > 8:
            raise Unfit(row, f"an array of {array.dtype}: cast it to a number or string")
        if array.dtype.kind != arrays[0].dtype.kind and not (numbers[row] and numbers[0]):
            raise Unfit(row, f"an array of {array.dtype}, {arrays[0].dtype} in the rows before: cast all to one type")
    stack = np.ma.stack if any(isinstance(a, np.ma.MaskedArray) for a in arrays) else np.stack
    if len(types) == 1 or not all(numbers):
        return of_numpy(stack(arrays))
    import pyarrow as pa

    common = of_numpy(np.zeros((1, *arrays[0].shape), np.result_type(*types))).type
    parts = []
    for row, array in enumerate(arrays):
        try:
            parts.append(exactly(of_numpy(array[None]), common))
        except Unfit as e:
            raise Unfit(row, f"an array of {array.dtype}, {arrays[0].dtype} in the rows before ({e})") from None
    return pa.concat_arrays(parts)


def _shaped(array: Any) -> str:
    return f"an array of shape {array.shape}" if array.ndim else f"{_short(array)}"


_WIDENS = {("int", "int"), ("int", "float"), ("float", "float"), ("text", "text"), ("bytes", "bytes")}


def exactly(column: Any, kind: Any, values: Sequence[Any] | None = None) -> Any:
    """Returns the column with values of a type, also in lists; raises Unfit at the first that would change.

    values are the objects that the column was made of: each has a type of its own.
    """
    if item(column.type).equals(item(kind)) and depth(column.type) == depth(kind):
        return column
    if (family(column.type), family(kind)) not in _WIDENS or depth(column.type) != depth(kind):
        for row, value in enumerate(values or ()):
            own = of_objects([value]).type
            if (family(own), family(kind)) not in _WIDENS or depth(own) != depth(kind):
                raise Unfit(row, f"{_short(value)} is {own}")
        raise Unfit(0, f"it is {column.type}")
    import numpy as np
    import pyarrow as pa

    column = fitted(column, [])
    shape, flat = [len(column)], column
    while is_list(flat.type):
        inner = flat.flatten()
        shape.append(len(inner) // len(flat) if len(flat) else 0)
        flat = inner
    if family(kind) in ("text", "bytes"):
        try:
            return of_shape(flat.cast(item(kind)), shape)
        except pa.ArrowException:  # bytes of another fixed size
            raise Unfit(0, f"it is {column.type}") from None
    have = flat.to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        made = have.astype(item(kind).to_pandas_dtype())
        back = made.astype(have.dtype)
    wrong = ~((back == have) & _same_sign(made, have) | (have != have))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise Unfit(at // max(1, int(np.prod(shape[1:], dtype=np.int64))), f"{_short(have[at])} is {item(column.type)}")
    return of_shape(of_numpy(made), shape)


def _same_sign(one: Any, other: Any) -> Any:
    """Returns where two arrays have the same sign: a cast to unsigned and back restores a negative number."""
    return (one < 0) == (other < 0)
