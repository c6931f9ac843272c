"""What rows_feed runs: programs that read a feed, and Spark's own figures for the same data.

In a notebook the functions below are defined by exec of this file; TensorFlowOnSpark runs in a process of its own:

    python feed_program.py list|bytes MASTER ROWS
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

WIDTH = 784


def sums(args: Any, ctx: Any) -> dict[str, float]:
    """Reads everything and adds up every value; the seconds are from the first batch to the last."""
    feed = ctx.get_data_feed()
    records, total, first, last = 0, 0.0, 0.0, 0.0
    while (batch := feed.next_numpy(1000)) is not None:
        if isinstance(batch, dict):
            (batch,) = batch.values()
        first = first or time.time()
        records += len(batch)
        total += float(batch.sum())
        last = time.time()
    return {"records": records, "total": total, "seconds": last - first, "first": first}


def discard(batches: Iterator[Any]) -> Iterator[Any]:
    """For mapInArrow: counts the rows of a partition, from its first batch to its last."""
    import time

    import pyarrow

    rows, first = 0, 0.0
    for batch in batches:
        first = first or time.time()
        rows += batch.num_rows
    yield pyarrow.RecordBatch.from_pydict({"rows": [rows], "first": [first], "last": [time.time()]})


def tfos(kind: str, master: str, rows: int) -> dict[str, float]:
    """TensorFlowOnSpark's feed of the same records into one worker that counts them."""
    import argparse
    import tempfile

    from pyspark.sql import SparkSession
    from tensorflowonspark import TFCluster

    said = os.path.join(tempfile.mkdtemp(), "said.json")

    def count(args: Any, ctx: Any) -> None:
        feed, records, first = ctx.get_data_feed(), 0, 0.0
        while not feed.should_stop():
            batch = feed.next_batch(100)
            first = first or time.time()
            records += len(batch)
        with open(said + ".new", "w") as f:
            json.dump({"records": records, "seconds": time.time() - first}, f)
        os.rename(said + ".new", said)

    builder = SparkSession.builder.master(master).config("spark.cores.max", "1")
    if path := os.environ.get("PYTHONPATH"):
        builder.config("spark.executorEnv.PYTHONPATH", path)
    spark = builder.getOrCreate()
    import numpy as np

    value = np.zeros(WIDTH, dtype=np.float32)
    record: Any = value.tolist() if kind == "list" else value.tobytes()
    data = spark.sparkContext.parallelize(range(4), 4).flatMap(lambda _: [record] * (rows // 4))
    cluster = TFCluster.run(spark.sparkContext, count, argparse.Namespace(), 1, 0, input_mode=TFCluster.InputMode.SPARK)
    cluster.train(data, 1)
    cluster.shutdown()
    with open(said) as f:
        found: dict[str, float] = json.load(f)
    spark.stop()
    return found


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TensorFlowOnSpark prints
    print(json.dumps(tfos(sys.argv[1], sys.argv[2], int(sys.argv[3]))), file=out, flush=True)
