"""An RDD of Spark as the source of a feed: its tasks make record batches of Python's objects first."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Mapping
from typing import Any

from tfcluster import (
    feed_arrow,
    feed_data,
    feed_records,
    feed_source,
    feed_spark,
    feed_tables,
    feed_values,
    spark_gpus,
)
from tfcluster.errors import UsageError

# The traceback of Python in an exception of the JVM.
_PYTHONS = re.compile(r"PythonException: (Traceback \(most recent call last\):\n.*?\n(?=\S)[^\n]*)", re.DOTALL)


class SparkRdd(feed_data.Source):
    """An RDD of tuples, dicts, arrays or scalars: the first record shows the columns and their types."""

    slots = True

    def __init__(self, rdd: Any, plan: Mapping[str, Any]) -> None:
        if plan.get("mode") == "inference":
            raise UsageError("inference of an RDD: make it a DataFrame first (rdd.toDF())")
        spark_gpus.for_feed(rdd.context, rdd=True)
        self._rdd = rdd
        self._group = f"tfcluster-feed-{secrets.token_hex(8)}"
        self._over = threading.Event()
        self._form = feed_records.Form("value", 0, (), (), ())
        with feed_spark.jobs(rdd.context, self._group, "tfcluster: the first record"), _pythons_error():
            first = rdd.take(1)
        for record in first:
            self._form = self._fed(record, plan)
        self.columns = self._form.names
        self.unnamed = self._form.kind == "value"

    def _fed(self, record: Any, plan: Mapping[str, Any]) -> feed_records.Form:
        """Returns the form of the records, with the columns that are fed."""
        try:
            form = feed_records.form_of(record)
        except feed_arrow.Unfit as e:
            raise UsageError(str(e)) from None
        except ValueError as e:
            raise UsageError(
                f"its first record contains {e}: make each record a number, a string, bytes, an array of numbers, "
                "or a tuple or dict of these"
            ) from None
        feed_tables.distinct(form.names)
        names = form.names
        if form.kind != "value" or plan.get("columns") or plan.get("label"):
            known = () if form.kind == "value" else names
            names = tuple(feed_data.chosen(plan.get("columns") or known, known, plan))
        at = [form.names.index(name) for name in names]
        return form._replace(names=names, keys=tuple(form.keys[n] for n in at), types=tuple(form.types[n] for n in at))

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        feed_spark.whole(feed_arrow, feed_values, feed_source, feed_records)
        staged = self._rdd.mapPartitionsWithIndex(feed_records.rdd_stage(dict(order), epoch, self._form))
        name = f"tfcluster: feed, epoch {epoch + 1}"
        with feed_spark.jobs(self._rdd.context, self._group, name), _pythons_error():
            said = feed_spark.collected(staged.collect, self._over)
        rows, self.nan = feed_spark.summed(feed_source.Delivered(*each) for each in said)
        return rows

    def waits(self) -> str:
        return feed_spark.waits(self._rdd.context, self._group)

    def cancel(self) -> None:
        self._over.set()
        feed_spark.cancel(self._rdd.context, self._group)


@contextlib.contextmanager
def _pythons_error() -> Any:
    """Raises an error of the user's functions as Python's own, without the JVM's exception around it."""
    try:
        yield
    except Exception as e:
        if (found := _PYTHONS.search(str(e))) is None:
            raise
        raise RuntimeError(found[1]) from None
