"""Sources of records, and the columns that they may have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tfcluster.errors import UsageError


class Source:
    """Data of the notebook. total is the number of records, 0 if it is unknown before the data is read."""

    unnamed = False  # one array
    once = False  # it cannot be read again
    total = 0
    slots = False  # its records are read by tasks of Spark, which need slots
    columns: tuple[str, ...] = ()
    nan: Mapping[str, int] = {}  # number of NaN of each column, in the last epoch that was read

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        """Delivers an epoch; returns the number of records. feed_link.Stopped if no more are taken."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends read, from another thread."""

    def waits(self) -> str:
        """Returns why read waits for its next record, as far as that is known; "" if it does not wait."""
        return ""

    def finish(self) -> Any:
        """Returns the value of inference, after read; None for other sources."""


CASTS = {
    "decimal": "cast it to double",
    "date": "cast it to int (unix_date) or string",
    "timestamp": "cast it to long (unix_micros) or string",
    "timestamp_ntz": "cast it to long or string",
    "map": "select the values that are needed as columns",
    "struct": "select its fields as columns ({name}.*)",
    "udt": "make it an array (pyspark.ml.functions.vector_to_array)",
    "variant": "take its values out (variant_get)",
}
FED = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "char", "varchar"}


def check_spark(fields: Iterable[Any]) -> None:
    """Raises UsageError if columns of Spark, given as fields of a schema, have types that cannot be fed."""
    problems = []
    for field in fields:
        kind = field.dataType
        while kind.typeName() == "array":
            kind = kind.elementType
        simple = kind.simpleString().partition("(")[0].partition("<")[0]
        if simple.partition(" ")[0] in FED:  # "string collate UNICODE_CI"
            continue
        how = CASTS.get("udt" if kind.typeName() == "udt" or hasattr(kind, "sqlType") else simple)
        how = (how or "cast it to a number or string").format(name=field.name)
        problems.append(f"column {field.name!r} is {field.dataType.simpleString()}: {how}")
    if problems:
        raise UsageError(in_one(problems))


def in_one(problems: list[str]) -> str:
    """Returns problems as a message. Its first line has the number of further problems."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return "\n".join([problems[0] + more, *problems[1:]])


class Words(NamedTuple):
    """The words for a column of the notebook's data, in the terms of its library."""

    data: str  # the variable
    name: str  # of the column; "" of an array
    library: str

    def remedy(self, kind: Any) -> str:
        """Returns the remedy for a column of a type, of the library or of Arrow, that is not fed."""
        column = f"{self.data}[{json.dumps(self.name)}]" if self.name else self.data
        library = self.library if self.library in ("pandas", "pyarrow") else "numpy"
        named = str(kind)
        for begin, of_library in _REMEDIES:
            if named.startswith(begin) and library in of_library:
                return of_library[library].format(column=column, data=self.data)
        return "cast it to a number or string"

    def missing(self) -> str:
        """Returns the words for a missing value, with the remedy."""
        return "NULL; fill or drop it" + _FILL.get(self.library, "")


_FILL = {"pandas": " (fillna, dropna)", "pyarrow": " (fill_null, drop_null)", "numpy": " (filled, compressed)"}
_DATES = {
    "pandas": 'cast it, as in {column}.astype("int64")',
    "pyarrow": 'cast it, as in {column}.cast("int64")',
    "numpy": 'cast it, as in {column}.astype("int64")',
}
# By the beginning of a type's name, in NumPy, pandas and Arrow.
_REMEDIES = (
    ("datetime64", _DATES),
    ("timedelta64", _DATES),
    ("timestamp", _DATES),
    ("duration", _DATES),
    ("period", _DATES),
    ("PeriodDtype", _DATES),
    ("date64", _DATES),
    ("time64", _DATES),
    (
        "date32",
        {
            "pandas": 'cast it, as in pd.to_datetime({column}).astype("int64")',
            "pyarrow": 'cast it, as in {column}.cast("int32")',
            "numpy": 'cast it, as in np.asarray({column}, "datetime64[D]").astype("int64")',
        },
    ),
    ("time32", {"pyarrow": 'cast it, as in {column}.cast("int32")'}),
    (
        "decimal",
        {
            "pandas": 'cast it, as in {column}.astype("float64")',
            "pyarrow": 'cast it, as in {column}.cast("float64")',
            "numpy": 'cast it, as in np.asarray({column}, "float64")',
        },
    ),
    (
        "struct",
        {
            "pandas": "make its fields columns, as in pd.DataFrame({column}.tolist())",
            "pyarrow": "make its fields columns, as in {data}.flatten()",
            "numpy": "give a dict of its fields",
        },
    ),
    ("map", {"pyarrow": "make columns of the values that are needed (pyarrow.compute.map_lookup)"}),
    ("IntervalDtype", {"pandas": "give its ends, as in {column}.array.left"}),
    ("complex", {"pandas": "give {column}.to_numpy().real and .imag", "numpy": "give {column}.real and {column}.imag"}),
    (
        "float128",
        {
            "pandas": 'cast it, as in {column}.astype("float64")',
            "numpy": 'cast it, as in {column}.astype("float64")',
        },
    ),
    ("extension", {"pyarrow": "give its storage: .storage of an array"}),
)


def chosen(given: Iterable[str], there: Iterable[str], plan: Mapping[str, Any]) -> list[str]:
    """Returns the columns to feed: --columns and the label. Raises UsageError if the data does not have one.

    A name may contain commas, which also separate names.
    """
    there = list(there)
    names = [name for text in given for name in named(text, there)]
    wanted = [*names, *([plan["label"]] if plan.get("label") and plan["label"] not in names else [])]
    for name in wanted:
        if name not in there:
            raise no_column("--columns" if name in names else "--label", name, there)
    return wanted


def named(text: str, there: Iterable[str]) -> list[str]:
    """Returns the columns that an option names."""
    return [text] if text in there else [name for part in text.split(",") if (name := part.strip())]


def no_column(option: str, name: str, there: Iterable[str]) -> UsageError:
    """Returns the error of an option that names a column outside the data."""
    known = ", ".join(filter(None, map(str, there)))
    return UsageError(f"{option} {name}: there is no " + (f"such column; choose from {known}" if known else "column"))
