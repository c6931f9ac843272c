"""The common part of Spark's sources: the pickling of functions, the groups and outcomes of jobs."""

from __future__ import annotations

import collections
import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfcluster import feed_link, jsonlines
from tfcluster.feed_source import Refused


def whole(*modules: Any) -> None:
    """Makes Spark pickle functions with their modules, and feed_link with its own; its tasks have no tfcluster.

    The modules stay registered: a feed that was given up ends while the next one is pickled, and Spark
    Connect pickles the functions of a DataFrame whenever it is used.
    """
    from pyspark import cloudpickle

    for module in (jsonlines, feed_link, *modules):
        cloudpickle.register_pickle_by_value(module)


def mapped(frame: Any, stage: Any, schema: Any, profile: Any) -> Any:
    """Calls frame.mapInArrow, with a profile if there is one: before Spark 4.0 it has no such parameter."""
    return frame.mapInArrow(stage, schema, **({} if profile is None else {"profile": profile}))


def summed(said: Iterable[Any]) -> tuple[int, dict[str, int]]:
    """Returns the numbers of records, and of NaN by column, in all tasks' reports (feed_source.Delivered).

    Raises Refused or Stopped if a task reports it.
    """
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


# Some seconds after the kill of a task that has not ended, Spark 4 ends the task's Python workers. Among them
# may be workers that the task has returned and another task uses by then (MonitorThread in
# PythonRunner.scala). That other task fails with this.
_TAKEN = "java.nio.channels.CancelledKeyException"
_TRIES = 4  # as many as Spark gives a task; on local[N] it gives one


def collected(job: Callable[[], Iterable[Any]], over: threading.Event) -> list[Any]:
    """Returns the reports of a feed's job; runs the job again if Spark itself ended a Python worker of it.

    Records that were delivered before count, as they do when Spark tries a task again. Once the feed is over
    no job is started again: a cancellation acts only on jobs that run.
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
    """Puts this thread's jobs of Spark into a group during the context; on Spark Connect it is their tag."""
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
    """Returns that a running job of the group has no slot, and what has the slots; "" if it has one.

    Spark Connect does not reveal it: "".
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
    """Returns the number of running tasks of each submitted stage; empty if this Spark does not reveal it.

    It asks the scheduler, which is not in Spark's Python API: the numbers of the status tracker follow only
    with the next heartbeat of an executor, up to ten seconds later (AppStatusListener.maybeUpdate).
    """
    running: collections.Counter[int] = collections.Counter()
    with contextlib.suppress(Exception):  # Py4JError, or a session that is being stopped
        queue = context._jsc.sc().taskScheduler().rootPool().getSortedTaskSetQueue()
        for task_set in (queue.apply(index) for index in range(queue.size())):
            running[task_set.stageId()] += task_set.runningTasks()
    return running


def cancel(spark: Any, group: str) -> None:
    """Cancels the jobs of a group; on Spark Connect the jobs with this tag."""
    with contextlib.suppress(Exception):
        if hasattr(spark, "interruptTag") and not hasattr(spark, "_jsparkSession"):
            spark.interruptTag(group)
        else:
            getattr(spark, "sparkContext", spark).cancelJobGroup(group)
