"""Tables of the notebook as columns to feed: pandas frames, Arrow tables, NumPy arrays and dicts of them.

A table is checked whole before any record of it is fed. One message names all columns that cannot be fed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfcluster import feed_arrow, feed_data, feed_values
from tfcluster.errors import UsageError
from tfcluster.feed_arrow import Unfit


class Column(NamedTuple):
    """The values of one column. part(begin, end) returns an Arrow array as it is fed."""

    rows: int
    nbytes: int
    part: Callable[[int, int], Any]


class Table(NamedTuple):
    """Columns of equal length."""

    columns: dict[str, Column]
    rows: int
    unnamed: bool  # one array

    @property
    def width(self) -> float:
        """Returns the approximate number of bytes of a record."""
        return sum(column.nbytes for column in self.columns.values()) / max(self.rows, 1)

    def batch(self, begin: int, end: int) -> Any:
        """Returns records as a record batch of Arrow."""
        import pyarrow as pa

        parts = [column.part(begin, end) for column in self.columns.values()]
        return pa.RecordBatch.from_arrays(parts, names=list(self.columns))


def library(value: Any) -> str:
    """Returns the package of a value's type."""
    return type(value).__module__.partition(".")[0]


def table_of(value: Any, plan: Mapping[str, Any], *, own: bool = False) -> Table | None:
    """Returns a value as a table; None if it is none. Raises UsageError with everything that cannot be fed.

    own: arrays of NumPy are copied, because the caller may change them.
    """
    is_array = library(value) == "numpy" and hasattr(value, "dtype")
    if library(value) == "pandas" and hasattr(value, "columns"):
        named = [(str(label), value.iloc[:, n]) for n, label in enumerate(value.columns)]
    elif library(value) == "pyarrow" and hasattr(value, "schema") and hasattr(value, "num_rows"):
        named = list(zip(value.schema.names, value.columns, strict=True))
    elif isinstance(value, Mapping):
        named = [(str(name), each) for name, each in value.items()]
    elif is_array:
        named = [("", value)]
    else:
        return None
    names = [name for name, _ in named]
    distinct(names)
    if is_array:
        _check_alone(value, plan)
    else:
        wanted = feed_data.chosen(plan.get("columns") or names, names, plan)
        named = [(name, named[names.index(name)][1]) for name in wanted]
    return _table(named, plan, is_array, own)


def not_a_table(value: Any, plan: Mapping[str, Any]) -> str:
    """Returns the message about a value that is no table, with a replacement."""
    kind, package, name = type(value).__name__, library(value), str(plan.get("data") or "x")
    forms = {
        "pandas": f"{name}.to_frame()",
        "polars": f"{name}.to_arrow()" if hasattr(value, "to_arrow") else f"{name}.collect().to_arrow()",
        "tensorflow": f"{name}.as_numpy_iterator()" if hasattr(value, "as_numpy_iterator") else f"{name}.numpy()",
        "torch": f"iter({name})" if hasattr(value, "__iter__") and hasattr(value, "batch_size") else f"{name}.numpy()",
        "jax": f"numpy.asarray({name})",
        "jaxlib": f"numpy.asarray({name})",
    }
    if hasattr(value, "scanner"):  # a Dataset of pyarrow
        forms["pyarrow"] = f"{name}.scanner().to_reader(), which is read once, or {name}.to_table()"
    if kind in ("tuple", "list"):
        return f"it is a {kind}: give a dict of arrays, as in {{'x': x, 'y': y}}, or one array"
    if package in forms:
        return f"it is a {kind} of {package}: give {forms[package]}"
    return (
        f"it is a {kind}: give a Spark or pandas DataFrame, an Arrow table, a NumPy array, a dict of arrays, "
        "or an iterator of batches"
    )


def distinct(names: Sequence[str]) -> None:
    """Raises UsageError if two columns have one name."""
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise UsageError(f"it has two columns {twice!r}: rename one of them")


def _check_alone(value: Any, plan: Mapping[str, Any]) -> None:
    """Raises UsageError if an option names a column of an array, which has none, or the array has fields."""
    for option in ("columns", "label"):
        if plan.get(option):
            given = plan[option] if isinstance(plan[option], str) else plan[option][0]
            raise feed_data.no_column(f"--{option}", given, ())
    if value.dtype.names:
        raise UsageError(
            f"it is of {value.dtype}: give a dict of its fields, as in "
            f"{{name: {plan.get('data') or 'x'}[name] for name in {plan.get('data') or 'x'}.dtype.names}}"
        )


def _table(named: Iterable[tuple[str, Any]], plan: Mapping[str, Any], is_array: bool, own: bool) -> Table:
    columns: dict[str, Column] = {}
    problems: list[str] = []
    for name, values in named:
        where = f"column {name!r}" if name or not is_array else "it"
        words = feed_data.Words(str(plan.get("data") or "x"), "" if is_array else name, library(values))
        try:
            columns[name] = _column(values, words, own)
            _check_values(columns[name], plan, name)
        except Unfit as e:
            why = words.missing() if str(e) == feed_arrow.NULL else str(e)
            problems.append(f"{where}, row {e.row}: {why}" if where != "it" else f"row {e.row}: {why}")
        except _Unfed as e:
            problems.append(f"{where} is {e.kind}: {e}")
    if problems:
        raise UsageError(feed_data.in_one(problems))
    lengths = {name: column.rows for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        said = ", ".join(f"{name or 'the array'} has {n}" for name, n in lengths.items())
        raise UsageError(
            f"every array must have the same number of records along its first axis: {said or 'there is no array'}"
        )
    return Table(columns, next(iter(lengths.values())), is_array)


_CHECKED = 1 << 16  # records


def _check_values(column: Column, plan: Mapping[str, Any], name: str) -> None:
    """Raises Unfit if a column violates --binary or --nan."""
    refuse = plan.get("nan") == "refuse"
    binary = (plan.get("binary") or {}).get(name)
    for begin in range(0, column.rows if refuse or binary else 0, _CHECKED):
        part = column.part(begin, min(begin + _CHECKED, column.rows))
        try:
            if binary:
                feed_arrow.check_binary(part, binary, name)
            if refuse:
                feed_arrow.refuse_nan(part)
        except Unfit as e:
            raise Unfit(begin + e.row, str(e)) from None


class _Unfed(Exception):
    """A column of a type that is not fed. The text is the remedy."""

    def __init__(self, kind: Any, remedy: str) -> None:
        super().__init__(remedy)
        self.kind = kind


def _column(values: Any, words: feed_data.Words, own: bool) -> Column:
    """Returns values as a column; raises Unfit or _Unfed if they cannot be one."""
    import numpy as np
    import pyarrow as pa

    if words.library == "pandas":
        values = _of_pandas(values, words)
    elif isinstance(values, list | tuple | range):
        values = _objects(list(values), words)
    elif hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    elif words.library != "pyarrow":
        values = np.asanyarray(values)
    if not isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray):
        raise _Unfed(f"a {type(values).__name__}", "give an array")
    if isinstance(values, np.ndarray):
        return _of_numpy(values, words, own)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return _of_arrow(pa.chunked_array(chunks, values.type), words)


def _of_pandas(series: Any, words: feed_data.Words) -> Any:
    """Returns a column of pandas as an array of NumPy, or of Arrow if it may have NULLs."""
    import numpy as np
    import pyarrow as pa

    if not hasattr(series, "dtype"):  # a frame
        return np.asarray(series)
    kind = series.dtype
    if isinstance(kind, np.dtype):
        return series.to_numpy() if kind.kind != "O" else _objects(series.tolist(), words)
    if type(kind).__name__ == "SparseDtype":
        return series.sparse.to_dense().to_numpy()
    if type(kind).__name__ in ("PeriodDtype", "IntervalDtype"):
        raise _Unfed(kind, words.remedy(type(kind).__name__))
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):  # categories of different types
        return _objects(series.tolist(), words)


def _objects(values: list[Any], words: feed_data.Words) -> Any:
    """Returns objects of Python as an array of Arrow; raises Unfit or _Unfed if they have no common type."""
    column = feed_values.of_objects(values)
    if not feed_arrow.family(column.type):
        raise _Unfed(f"of {type(values[0]).__name__}", words.remedy(column.type))
    return column


def _of_numpy(values: Any, words: feed_data.Words, own: bool) -> Column:
    import numpy as np

    if not values.ndim:
        raise _Unfed("one value", "give an array, whose first axis is that of the records")
    kind = values.dtype
    if kind.kind not in "biufSUO" or kind.kind == "f" and kind.itemsize > 8:
        raise _Unfed(f"of {kind}", words.remedy(kind))
    if kind.kind in "OSU":
        return _of_arrow(_chunked(feed_values.of_numpy(values)), words)
    if isinstance(values, np.ma.MaskedArray):
        feed_values.of_numpy(values)
        values = values.data
    if own:
        values = values.copy()
    return Column(len(values), values.nbytes, lambda begin, end: feed_values.of_numpy(values[begin:end]))


def _chunked(column: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([column])


def _of_arrow(values: Any, words: feed_data.Words) -> Column:
    import pyarrow as pa

    kind = feed_arrow.plain_type(values.type)
    if pa.types.is_null(kind):
        if len(values):
            raise Unfit(0, feed_arrow.NULL)
        kind = pa.float64()
    if not feed_arrow.family(kind):
        raise _Unfed(values.type, words.remedy(kind))
    widths: list[int] = []
    begin = nbytes = 0
    plain = kind == values.type
    for chunk in values.chunks:
        step = len(chunk) if plain else _CHECKED  # decoded values may be much larger
        for at in range(0, len(chunk), max(step, 1)):
            try:
                fitted = feed_arrow.fitted(chunk.slice(at, step), widths)
            except Unfit as e:
                raise Unfit(begin + at + e.row, str(e)) from None
            nbytes += fitted.nbytes
        begin += len(chunk)

    def part(begin: int, end: int) -> Any:
        chunks = [feed_arrow.fitted(chunk, widths) for chunk in values.slice(begin, end - begin).chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], kind)

    return Column(len(values), nbytes, part)
