"""What rows_spark measures tfcluster beside: one fresh session, in a process of its own.

    python spark_program.py tfos|pipe|rdd|arrow MASTER FOLDER

It prints one JSON object: seconds. tfos is TensorFlowOnSpark's cluster, started and shut down twice on one session;
pipe is the least stage of two tasks that run a program, rdd and arrow the least barrier stage of Python tasks, as RDD
and by mapInArrow.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

LIMIT = 120.0


def session(master: str) -> tuple[SparkSession, float]:
    """A session with both executors, and the seconds that it took."""
    began = time.monotonic()
    builder = SparkSession.builder.master(master)
    if path := os.environ.get("PYTHONPATH"):  # executors have the workers' environment, not this one
        builder.config("spark.executorEnv.PYTHONPATH", path)
    spark = builder.getOrCreate()
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    while executors().size() < 3:  # the driver is counted too
        if time.monotonic() > began + LIMIT:
            raise SystemExit("the executors do not register")
        time.sleep(0.02)
    return spark, time.monotonic() - began


def enter(args: Any, ctx: Any) -> None:
    """A main_fun that tells when it has been entered with TensorFlow imported."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    path = pathlib.Path(args.folder, f"{args.run}-{ctx.executor_id}")
    path.with_suffix(".new").write_text(repr(time.time()))
    path.with_suffix(".new").rename(path)


def tfos(spark: SparkSession, folder: str) -> dict[str, Any]:
    """run() until every main_fun is entered, cold and again, and shutdown()."""
    import argparse

    from tensorflowonspark import TFCluster

    entered: list[float] = []
    ends: list[float] = []
    for run in ("cold", "again"):
        args = argparse.Namespace(folder=folder, run=run)
        began = time.time()
        cluster = TFCluster.run(spark.sparkContext, enter, args, 2, 0, input_mode=TFCluster.InputMode.SPARK)
        files = [pathlib.Path(folder, f"{run}-{n}") for n in range(2)]
        while not all(file.exists() for file in files):
            if time.time() > began + LIMIT:
                raise SystemExit("TensorFlowOnSpark's main_funs are not entered")
            time.sleep(0.01)
        entered.append(max(float(file.read_text()) for file in files) - began)
        began = time.time()
        cluster.shutdown()
        ends.append(time.time() - began)
    return {"entered": entered, "shutdown": ends}


def pipe(spark: SparkSession, _: str) -> dict[str, Any]:
    """A stage whose tasks run a program, with no Python on the executors."""
    began = time.monotonic()
    spark.sparkContext._jsc.parallelize(["a", "b"], 2).pipe(["cat"]).collect()
    return {"stage": time.monotonic() - began}


def rdd(spark: SparkSession, _: str) -> dict[str, Any]:
    """A barrier stage of RDDs."""
    began = time.monotonic()
    spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(lambda part: part).collect()
    return {"stage": time.monotonic() - began}


def arrow(spark: SparkSession, _: str) -> dict[str, Any]:
    """A barrier stage by mapInArrow, the only way of Spark Connect."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    began = time.monotonic()
    spark.range(2, numPartitions=2).mapInArrow(through, "id long", barrier=True).collect()
    return {"stage": time.monotonic() - began}


def main() -> None:
    """Measure and print."""
    what, master, folder = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TensorFlowOnSpark prints
    spark, seconds = session(master)
    said = {"tfos": tfos, "pipe": pipe, "rdd": rdd, "arrow": arrow}[what](spark, folder)
    print(json.dumps({"session": seconds, **said}), file=out, flush=True)
    with contextlib.suppress(Exception):  # what was measured is said
        spark.stop()


if __name__ == "__main__":
    main()
