"""What a source of records is, and which columns it may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfcluster.errors import UsageError


class Source:
    """Data of the notebook. total is the number of records, 0 where it is not known before it is read."""

    unnamed = False  # one array
    once = False  # it cannot be read again
    total = 0
    slots = False  # its records are read by tasks of Spark, which need slots
    shapes: Mapping[str, tuple[int, ...]] = {}
    columns: tuple[str, ...] = ()

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        """Delivers an epoch; returns the number of records. feed_link.Stopped where nothing more is taken."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends read, from another thread."""

    def waits(self) -> str:
        """Return what read waits for before its next record, as far as that is known; "" for nothing."""
        return ""

    def finish(self) -> Any:
        """What inference made of the data, behind read."""


CASTS = {
    "decimal": "cast it to double",
    "date": "cast it to int (unix_date) or string",
    "timestamp": "cast it to long (unix_micros) or string",
    "timestamp_ntz": "cast it to long or string",
    "map": "select the values that are needed as columns",
    "struct": "select its fields as columns ({name}.*)",
    "udt": "make it an array (pyspark.ml.functions.vector_to_array)",
}
FED = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"}


def check_spark(name: str, kind: Any) -> None:
    """UsageError where a column of Spark has a type that cannot be fed."""
    inner, text = kind, kind.simpleString()
    while inner.typeName() == "array":
        inner = inner.elementType
    simple = inner.simpleString().partition("(")[0].partition("<")[0]
    if simple in FED and (inner is kind or simple not in ("string", "binary")):
        return
    how = CASTS.get("udt" if inner.typeName() == "udt" or hasattr(inner, "sqlType") else simple)
    raise UsageError(f"column {name!r} is {text}: {(how or 'cast it to a number or string').format(name=name)}")


def chosen(names: Iterable[str], there: Iterable[str], plan: Mapping[str, Any]) -> list[str]:
    """The columns to feed: those of --columns, and the label."""
    there = list(there)
    wanted = [*names, *([plan["label"]] if plan.get("label") and plan["label"] not in names else [])]
    for name in wanted:
        if name not in there:
            raise no_column("--columns" if name in names else "--label", name, there)
    return wanted


def no_column(option: str, name: str, there: Iterable[str]) -> UsageError:
    """The error of an option that names a column which the data does not have."""
    known = ", ".join(filter(None, map(str, there)))
    return UsageError(f"{option} {name}: there is no " + (f"such column; choose from {known}" if known else "column"))


def check_arrow(schema: Any) -> None:
    """UsageError where a column of Arrow has a type that cannot be fed."""
    import pyarrow as pa

    for field in schema:
        kind = field.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            kind = kind.value_type
        fed = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)
        text = text or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        if not fed and not (text and kind is field.type):
            how = next((h for k, h in CASTS.items() if str(kind).startswith(k)), "cast it to a number or string")
            raise UsageError(f"column {field.name!r} is {field.type}: {how.format(name=field.name)}")
