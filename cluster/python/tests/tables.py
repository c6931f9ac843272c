"""Tables at random, of a seed: what is in them, the forms in which libraries have it, and what spoils a table."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

WHOLE = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
NUMBERS = ("?", *WHOLE, "f2", "f4", "f8")
NAMES = ("x", "Sepal.Length", "a b", "ümlaut", 'quo"te', "ba`ck", "", "0", "a,b", "[1]", "select")
LETTERS = "ab\x00 é漢🙂'\"`\\\n"


class Case(NamedTuple):
    """A table, and the columns that are fed of it; a column that spoils it is named instead."""

    value: Any
    columns: dict[str, Any]  # arrays of NumPy
    spoilt: str | None  # the column that is refused; None: everything is fed


def case(seed: int) -> Case:
    """The table of a seed."""
    r = random.Random(seed)
    library = r.choice(("array", "dict", "pandas", "table", "batch", "arrays", "frames", "batches"))
    rows = r.choice((0, 1, 2, 7, 100)) if library in ("array", "dict", "pandas", "table", "batch") else r.randint(1, 60)
    names = [""] if library in ("array", "arrays") else r.sample(NAMES, r.randint(1, 4))
    forms: dict[str, Callable[..., Any]] = {
        "array": of_numpy,
        "arrays": of_numpy,
        "dict": of_numpy,
        "pandas": of_pandas,
        "frames": of_pandas,
    }
    form = forms.get(library, of_arrow)
    spoilt = r.choice(names) if rows and r.random() < 0.25 else None
    columns, values = {}, {}
    for name in names:
        if name == spoilt:
            columns[name], values[name] = None, bad(r, form, rows)
        else:
            columns[name], values[name] = form(r, rows)
    return Case(whole(r, library, names, values, rows), columns, spoilt)


def whole(r: random.Random, library: str, names: list[str], values: dict[str, Any], rows: int) -> Any:
    """Columns as one value of a library; an iterator gives it in pieces."""
    match library:
        case "array":
            return values[""]
        case "dict":
            return values
        case "pandas":
            return frame(names, values)
        case "table":
            return pa.table(list(values.values()), names=names)
        case "batch":
            arrays = [v.combine_chunks() if isinstance(v, pa.ChunkedArray) else v for v in values.values()]
            return pa.RecordBatch.from_arrays(arrays, names=names)
    ends = sorted(r.choices(range(rows + 1), k=r.randint(0, 3)))
    cuts = list(zip([0, *ends], [*ends, rows], strict=True))
    if library == "arrays":
        return iter([values[""][a:b] for a, b in cuts])
    if library == "frames":
        together = frame(names, values)
        return iter([together.iloc[a:b] for a, b in cuts])
    table = pa.table(list(values.values()), names=names)
    return iter([table.slice(a, b - a) for a, b in cuts])


def frame(names: list[str], values: dict[str, Any]) -> pd.DataFrame:
    """A frame whose columns may have one name in common with none, and numbers for names."""
    made = pd.concat([pd.Series(v).reset_index(drop=True) for v in values.values()], axis=1)
    made.columns = [int(n) if n.isdigit() else n for n in names]
    return made


# ------------------------------------------------------------------- values


def numbers(r: random.Random, kind: str, shape: tuple[int, ...]) -> Any:
    """Numbers of a type, extreme ones among them."""
    dtype, n = np.dtype(kind), int(np.prod(shape))
    if dtype.kind == "b":
        return np.array([r.random() < 0.5 for _ in range(n)], bool).reshape(shape)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        odd = [np.nan, np.inf, -np.inf, -0.0, float(info.max), float(info.tiny), float(info.smallest_subnormal)]
        pick = [r.choice(odd) if r.random() < 0.2 else r.uniform(-1e3, 1e3) for _ in range(n)]
        return np.array(pick, "f8").astype(dtype).reshape(shape)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    pick = [r.choice((low, high, 0)) if r.random() < 0.2 else r.randint(low, high) for _ in range(n)]
    return np.array(pick, dtype).reshape(shape)


def texts(r: random.Random, n: int, kind: type) -> list[Any]:
    """Text or bytes, also empty and with zeros."""
    found = ["".join(r.choices(LETTERS, k=r.randint(0, 5))) for _ in range(n)]
    return found if kind is str else [text.encode() for text in found]


def shape_of(r: random.Random, rows: int) -> tuple[int, ...]:
    """The shape of a column."""
    return (rows, *r.choices((1, 2, 3), k=r.choice((0, 0, 0, 1, 2))))


def objects(values: list[Any], shape: tuple[int, ...] | None = None) -> Any:
    """An array of Python's objects."""
    made = np.empty(len(values), object)
    made[:] = values
    return made if shape is None else made.reshape(shape)


# -------------------------------------------------------------------- forms


def of_numpy(r: random.Random, rows: int) -> tuple[Any, Any]:
    """A column, and an array of NumPy that holds it."""
    shape = shape_of(r, rows)
    if r.random() < 0.25:
        kind = r.choice((str, bytes))
        values = texts(r, int(np.prod(shape)), kind)
        if r.random() < 0.5 or not values:
            own = np.array([v.rstrip("\0" if kind is str else b"\0") for v in values], "U5" if kind is str else "S20")
            return objects(own.tolist(), shape), own.reshape(shape)
        return objects(values, shape), objects(values, shape)
    truth = numbers(r, r.choice(NUMBERS), shape)
    match r.randrange(6):
        case 0:
            return truth, truth.astype(truth.dtype.newbyteorder(">"))
        case 1:
            return truth, np.repeat(truth, 2, axis=0)[::2]
        case 2:
            return truth, np.asfortranarray(truth)
        case 3:
            return truth, truth[::-1].copy()[::-1]
        case 4:
            return truth, np.ma.masked_array(truth, mask=np.zeros(truth.shape, bool))
    return truth, truth


def of_pandas(r: random.Random, rows: int) -> tuple[Any, Any]:
    """A column, and a series of pandas that holds it."""
    if r.random() < 0.3:
        values = texts(r, rows, r.choice((str, str, bytes)))
        truth = objects(values)
        if values and isinstance(values[0], str):
            form = r.choice(("object", "string", "category", "arrow"))
            if form == "category":  # pandas takes texts for equal that are so up to a zero
                truth = objects([v.replace("\0", "") for v in values])
            dtype = pd.ArrowDtype(pa.large_string()) if form == "arrow" else form
            return truth, pd.Series(truth, dtype=object).astype(dtype)
        return (truth if values else np.empty(0, "f8")), pd.Series(truth, dtype=object)
    if r.random() < 0.2 and rows:
        truth = numbers(r, r.choice(("f8", "i4", "u1")), (rows, *r.choices((1, 2, 3), k=r.choice((1, 2)))))
        return truth, pd.Series(list(truth))
    truth = numbers(r, r.choice(NUMBERS), (rows,))
    plain = pd.Series(truth)
    match r.randrange(6):
        case 0 if truth.dtype.kind in "iu":
            return truth, plain.astype(truth.dtype.name.replace("i", "I", 1).replace("u", "U", 1))
        case 1 if truth.dtype.kind in "iuf" and truth.dtype.itemsize > 2:
            return truth, pd.Series(pd.arrays.ArrowExtensionArray(pa.array(truth)))
        case 2 if truth.dtype.kind in "iu":
            return truth, plain.astype("category")
        case 3 if truth.dtype.name in ("int64", "float64", "bool") and rows:
            return truth, pd.Series(truth.tolist(), dtype=object)
        case 4 if truth.dtype.kind in "iu":
            return truth, pd.Series(pd.arrays.SparseArray(truth))
        case 5:
            return truth, pd.Series(truth.astype(truth.dtype.newbyteorder(">")))
    return truth, plain


def of_arrow(r: random.Random, rows: int) -> tuple[Any, Any]:
    """A column, and an array of Arrow that holds it, in chunks."""
    shape = shape_of(r, rows)
    n = int(np.prod(shape))
    if r.random() < 0.3:
        kind = r.choice(
            (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(2))
        )
        values = texts(r, n, str if "string" in str(kind) else bytes)
        if kind == pa.binary(2):
            values = [(v + b"\0\0")[:2] for v in values]
        truth: Any = objects(values, shape)
        flat = pa.array(values, kind)
    else:
        truth = numbers(r, r.choice(NUMBERS), shape)
        flat = pa.array(truth.reshape(-1))
    if r.random() < 0.2 and not pa.types.is_float16(flat.type) and "view" not in str(flat.type):
        flat = flat.dictionary_encode()
    elif r.random() < 0.1 and len(shape) == 1 and flat.type in (pa.int32(), pa.int64(), pa.string()):
        flat = pc.run_end_encode(flat)
    for size in reversed(shape[1:]):
        flat = in_lists(r, flat, size)
    pieces = [flat] if r.random() < 0.5 or not rows else [flat.slice(0, rows // 2), flat.slice(rows // 2)]
    return truth, pa.chunked_array(pieces, flat.type)


def in_lists(r: random.Random, flat: Any, size: int) -> Any:
    """Values in lists of one size, of any of the kinds that Arrow has."""
    ends = np.arange(0, len(flat) + 1, size)
    match r.randrange(4):
        case 0:
            return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)
        case 1:
            return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), flat)
        case 2 if len(flat):
            sizes = pa.array(np.full(len(ends) - 1, size), pa.int32())
            return pa.ListViewArray.from_arrays(pa.array(ends[:-1], pa.int32()), sizes, flat)
    return pa.FixedSizeListArray.from_arrays(flat, size)


# --------------------------------------------------------------- what spoils


def bad(r: random.Random, form: Any, rows: int) -> Any:
    """A column that is refused."""
    at = r.randrange(rows)
    if form is of_numpy:
        mask = np.arange(rows) == at
        return r.choice(
            (
                np.ma.masked_array(np.arange(float(rows)), mask=mask),
                np.array(["a" if n != at else None for n in range(rows)], object),
                np.arange(rows).astype("M8[s]"),
                np.arange(rows) * 1j,
                np.zeros(rows, "longdouble"),
            )
        )
    if form is of_pandas:
        return r.choice(
            (
                pd.Series([None if n == at else "a" for n in range(rows)], dtype=object),
                pd.Series([None if n == at else n for n in range(rows)], dtype="Int64"),
                pd.Series(pd.to_datetime(np.arange(rows))),
                pd.Series([np.zeros(3 if n == at else 2) for n in range(rows)] + [np.zeros(1)])[: max(rows, 2)]
                if rows > 1
                else pd.Series([None], dtype=object),
                pd.Series([b"b" if n == at else "a" for n in range(rows)], dtype=object)
                if rows > 1
                else pd.Series([1j]),
                pd.Series([None if n == at else "a" for n in range(rows)]).astype("category")
                if rows > 1
                else pd.Series(pd.period_range("2020", periods=1)),
            )
        )
    return r.choice(
        (
            pa.array([None if n == at else n for n in range(rows)], pa.int64()),
            pa.array([[1, None] if n == at else [1, 2] for n in range(rows)]),
            pa.array(range(rows), pa.timestamp("us")),
            pa.array([{"a": n} for n in range(rows)]),
            pa.array([None if n == at else "a" for n in range(rows)], pa.string()).dictionary_encode(),
            pa.array([[1, 2, 3] if n == at else [1] for n in range(rows)]) if rows > 1 else pa.array([None], pa.null()),
        )
    )


def equal(got: Any, want: Any) -> bool:
    """Whether arrays have the same type, shape and bits."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype == object:
        same = (type(a) is type(b) and a == b for a, b in zip(got.ravel(), want.ravel(), strict=True))
        return all(same)
    return np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(want).tobytes()
