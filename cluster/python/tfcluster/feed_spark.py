"""What the sources of Spark have in common: how their functions travel, whose jobs they are, and how they ended."""

from __future__ import annotations

import collections
import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfcluster import feed_link
from tfcluster.feed_source import Refused


def whole(*modules: Any) -> None:
    """Has functions of modules travel to Spark's tasks with their modules, which are not there.

    They stay registered: a feed that was given up ends while the next one is pickled, and Spark Connect pickles the
    functions of a DataFrame whenever it is used.
    """
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)


def mapped(frame: Any, stage: Any, schema: Any, profile: Any) -> Any:
    """frame.mapInArrow, with a resource profile if there is one: Spark's before 4.0 has no such parameter."""
    return frame.mapInArrow(stage, schema, **({} if profile is None else {"profile": profile}))


def summed(said: Iterable[Any]) -> tuple[int, dict[str, int]]:
    """The records of all partitions, and the NaN of each column, of what their tasks say (feed_source.Delivered)."""
    parts = list(said)
    for part in parts:
        if part.refused:
            raise Refused(part.refused)
    if stopped := [part.stopped for part in parts if not part.whole]:
        raise feed_link.Stopped(max(stopped))
    nan: collections.Counter[str] = collections.Counter()
    for part in parts:
        nan.update(json.loads(part.nan or "{}"))
    return sum(part.rows for part in parts), dict(nan)


# Of a task that was killed and has not ended, Spark 4 ends the Pythons some seconds later, among them those that the
# task has given back and another task has by then (MonitorThread in PythonRunner.scala). That task fails with this.
_TAKEN = "java.nio.channels.CancelledKeyException"
_TRIES = 4  # as many as Spark gives a task, but on local[N], where a task has one


def collected(job: Callable[[], Iterable[Any]], over: threading.Event) -> list[Any]:
    """Return what a job of a feed says; it runs again where Spark itself took a Python away from it.

    What was delivered before counts, as where Spark tries a task again. Once the feed is over no job is started:
    what cancels it acts on jobs that run.
    """
    for _ in range(_TRIES - 1):
        try:
            return list(job())
        except Exception as e:
            if _TAKEN not in str(e) or over.is_set():
                raise
    return list(job())


@contextlib.contextmanager
def jobs(spark: Any, group: str, name: str) -> Iterator[None]:
    """Spark's jobs of this thread belong to a group, or on Spark Connect have it as their tag."""
    if not hasattr(spark, "_jsc") and not hasattr(spark, "_jsparkSession"):
        spark.addTag(group)
        try:
            yield
        finally:
            spark.removeTag(group)
        return
    context = getattr(spark, "sparkContext", spark)
    context.setJobGroup(group, name, interruptOnCancel=True)
    try:
        yield
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)


def waits(spark: Any, group: str) -> str:
    """Return that a running job of the group has no slot, and who has them; "" where it has one.

    Spark Connect does not tell: "".
    """
    if hasattr(spark, "interruptTag") and not hasattr(spark, "_jsparkSession"):
        return ""
    context = getattr(spark, "sparkContext", spark)
    tracker = context.statusTracker()
    jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number))]
    stages = {stage for job in jobs if job.status == "RUNNING" for stage in job.stageIds}
    running = _running(context)
    if not stages & running.keys() or any(running[stage] for stage in stages & running.keys()):
        return ""
    if not (others := sum(running.values())):
        return "waiting for Spark to start a task of the feed: no other task runs, so an executor is missing"
    return f"waiting for a free slot of Spark: {others} {'task' if others == 1 else 'tasks'} of other jobs run"


def _running(context: Any) -> collections.Counter[int]:
    """Return how many tasks of each submitted stage run; empty where this Spark does not tell.

    The scheduler is asked, which is not in Spark's Python API: the numbers of the status tracker follow only with
    the next heartbeat of an executor, up to ten seconds later (AppStatusListener.maybeUpdate).
    """
    running: collections.Counter[int] = collections.Counter()
    with contextlib.suppress(Exception):  # Py4JError, or a session that is being stopped
        queue = context._jsc.sc().taskScheduler().rootPool().getSortedTaskSetQueue()
        for task_set in (queue.apply(index) for index in range(queue.size())):
            running[task_set.stageId()] += task_set.runningTasks()
    return running


def cancel(spark: Any, group: str) -> None:
    """Cancels the jobs of a group, or those with a tag on Spark Connect."""
    with contextlib.suppress(Exception):
        if hasattr(spark, "interruptTag") and not hasattr(spark, "_jsparkSession"):
            spark.interruptTag(group)
        else:
            getattr(spark, "sparkContext", spark).cancelJobGroup(group)
