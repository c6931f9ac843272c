"""A DataFrame of Spark as the source of a feed."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tfcluster import feed_arrow, feed_data, feed_source, feed_spark, feed_tables, spark_gpus
from tfcluster.errors import UsageError


def columns_of(frame: Any, given: Sequence[str], plan: Mapping[str, Any]) -> list[str]:
    """Returns the columns of a DataFrame that are fed; raises UsageError if they cannot be."""
    if getattr(frame, "isStreaming", False):
        raise UsageError("it is a stream, which has no end: give a DataFrame of what there is (spark.read)")
    feed_tables.distinct(frame.columns)
    names = feed_data.chosen(given or frame.columns, frame.columns, plan)
    feed_data.check_spark(frame.schema[name] for name in names)
    return names


def numbered(frame: Any, names: Sequence[str]) -> Any:
    """Returns a DataFrame of some columns, which have their numbers as names.

    Spark takes names with dots for fields of structs, and text with a collation, char and varchar for types
    of their own.
    """
    columns = []
    for number, name in enumerate(names):
        column = "`" + name.replace("`", "``") + "`"
        if frame.schema[name].dataType.simpleString().startswith(("string ", "char(", "varchar(")):
            column = f"CAST({column} AS STRING)"
        columns.append(f"{column} AS `{number}`")
    return frame.selectExpr(*columns)


class SparkFrame(feed_data.Source):
    """A DataFrame, of a classic session or of Spark Connect. Spark's task of a partition delivers it."""

    slots = True

    def __init__(self, frame: Any, plan: Mapping[str, Any]) -> None:
        self.columns = tuple(columns_of(frame, plan.get("columns") or (), plan))
        self._frame = numbered(frame, self.columns)
        self._group = f"tfcluster-feed-{secrets.token_hex(8)}"
        self._over = threading.Event()
        self._profile = spark_gpus.for_feed(frame.sparkSession)

    def read(self, order: Mapping[str, Any], epoch: int) -> int:
        feed_spark.whole(feed_arrow, feed_source)
        stage = feed_source.spark_stage(dict(order), epoch, self.columns)
        staged = feed_spark.mapped(self._frame, stage, feed_source.SPARK_SCHEMA, self._profile)
        rows, self.nan = feed_spark.summed(self._collect(staged, epoch))
        return rows

    def _collect(self, frame: Any, epoch: int) -> list[Any]:
        with feed_spark.jobs(frame.sparkSession, self._group, f"tfcluster: feed, epoch {epoch + 1}"):
            return feed_spark.collected(frame.collect, self._over)

    def waits(self) -> str:
        return feed_spark.waits(self._frame.sparkSession, self._group)

    def cancel(self) -> None:
        self._over.set()
        feed_spark.cancel(self._frame.sparkSession, self._group)
