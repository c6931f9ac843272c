"""The feed beside TensorFlowOnSpark's and beside the same query into a task that discards, in one run."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from typing import Any

from measure import Figure, Options, median
from rows_spark import _tensorflowonspark
from standalone import Standalone
from workplace import DEADLINE, BenchError, Cell, Kernel, Missing, Workplace

PROGRAM = pathlib.Path(__file__).with_name("feed_program.py")
QUOTED = {"list": 3048.0, "bytes": 4118.0}  # records a second
ROWS = 180_000
_FREE = (os.cpu_count() or 1) >= 8  # for two tasks of Spark, each with its Python, and two programs
FRAMES = f"""
import pyspark.sql.functions as F
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("{{url}}").config("spark.cores.max", "{{cores}}").getOrCreate()
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
base = spark.range(0, {ROWS}, 1, {{parts}})
arrays = base.select(F.array_repeat(F.col("id").cast("float") * 0 + 1, 784).alias("x")).cache()
binary = base.select(F.unhex(F.repeat(F.lit("0000803f"), 784)).alias("x")).cache()
arrays.count(), binary.count()
"""
DISCARD = """
import json
said = {frame}.mapInArrow(discard, "rows long, first double, last double").collect()
print("said", json.dumps([sum(r.rows for r in said), max(r.last for r in said) - min(r.first for r in said if r.rows)]))
"""
TRAIN = """
import json, time
began = time.time()
run = %tfcluster train {data} {options}
parts = list(run.results.values())
print("said", json.dumps([sum(p["records"] for p in parts), max(p["first"] + p["seconds"] for p in parts)
      - min(p["first"] for p in parts), sum(p["total"] for p in parts), max(p["first"] for p in parts) - began]))
"""


class Rates:
    """Records a second by what was measured."""

    def __init__(self, place: Workplace, options: Options) -> None:
        self.place = place
        self.options = options
        self.rates: dict[str, list[float]] = {}
        self.first: dict[str, list[float]] = {}  # seconds from the cell to the first batch

    def add(self, what: str, records: float, seconds: float) -> None:
        """Keep what was measured."""
        self.rates.setdefault(what, []).append(records / seconds)

    def train(self, kernel: Kernel, what: str, data: str, epochs: int, options: str = "") -> None:
        """One feed into programs that add up every value."""
        kernel.ok("%tfcluster start --wait sums")
        cell = kernel.ok(TRAIN.format(data=data, options=f"--epochs {epochs} {options}"))
        said = _said(cell)
        if said[0] != said[2] / 784:
            raise BenchError(f"{what}: {said[0]} records have the sum {said[2]}")
        self.add(what, said[0], said[1])
        self.first.setdefault(what, []).append(said[3])

    def discard(self, kernel: Kernel, what: str, frame: str) -> None:
        """The same query into a function that counts."""
        self.add(what, *_said(kernel.ok(DISCARD.format(frame=frame))))

    def tfos(self, tfos: pathlib.Path, kind: str, url: str) -> None:
        """TensorFlowOnSpark's feed."""
        command = [self.place.python, str(PROGRAM), kind, url, "8000"]
        env = {**self.place.env, "PYTHONPATH": str(tfos)}
        done = subprocess.run(command, env=env, cwd=self.place.work, capture_output=True, text=True, timeout=DEADLINE)
        if done.returncode or not done.stdout:  # its shutdown may end the program
            self.options.say(f"TensorFlowOnSpark: {done.stderr.strip()[-3000:]}")
            return
        said = json.loads(done.stdout)
        self.add(f"tfos {kind}", said["records"], said["seconds"])


def feed(place: Workplace, options: Options) -> list[Figure]:
    """Rates of the notebook's arrays on this machine, and of Spark's DataFrames."""
    rates = Rates(place, options)
    _arrays(rates)
    try:
        tfos: pathlib.Path | None = _tensorflowonspark(place)
    except Missing as e:
        tfos = None
        options.say(f"{e}: its figures are quoted")
    with Standalone(place) as spark:
        for n in range(options.times(3, 1)):
            options.say(f"feed from Spark, round {n + 1}")
            if tfos:
                for kind in QUOTED:
                    rates.tfos(tfos, kind, spark.url)
                    spark.free()
            _spark(rates, spark.url, 1)
            spark.free()
        _spark(rates, spark.url, 2)
    return _figures(rates)


def _said(cell: Cell) -> list[float]:
    """The numbers that a cell printed, between whatever Spark prints."""
    found = re.search(r"said (\[[^]]*\])", cell.text)
    if found is None:
        raise BenchError(f"the cell printed no numbers: {cell.all}")
    numbers: list[float] = json.loads(found[1])
    return numbers


def _arrays(rates: Rates) -> None:
    with rates.place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 1 --framework none\nimport numpy as np")
        kernel.ok(PROGRAM.read_text().partition("if __name__")[0])
        kernel.ok("x = np.ones((100_000, 784), dtype=np.float32)")
        for _ in range(rates.options.times(5, 2)):
            rates.train(kernel, "arrays of the notebook", "x", 5)
        kernel.ok("%tfcluster shutdown")


def _spark(rates: Rates, url: str, workers: int) -> None:
    tail = "" if workers == 1 else ", two workers"
    with rates.place.kernel("tfcluster") as kernel:
        kernel.ok(FRAMES.format(url=url, cores=workers, parts=4 * workers))
        kernel.ok(f"%tfcluster reserve --backend spark --workers {workers} --framework none")
        kernel.ok(PROGRAM.read_text().partition("if __name__")[0])
        for frame in ("arrays", "binary"):
            binary = " --binary x:float32[784]" if frame == "binary" else ""
            for _ in range(rates.options.times(3, 2)):
                rates.discard(kernel, f"{frame}, discarded{tail}", frame)
                rates.train(kernel, f"{frame}{tail}", frame, 1, binary)
        kernel.ok("%tfcluster shutdown\nspark.stop()")


def _rate(values: list[float]) -> str:
    return f"{median(values):,.0f} [{min(values):,.0f}, {max(values):,.0f}] rec/s"


def _figures(rates: Rates) -> list[Figure]:
    of: dict[str, Any] = rates.rates
    data = {"records per second": of, "seconds to the first batch": rates.first}
    ours = median(of["arrays of the notebook"])
    figures = [
        Figure(
            11,
            "feed: arrays of the notebook, one worker that adds up",
            "–",
            _rate(of["arrays of the notebook"]),
            f"{ours / 1e6:.2f} M rec/s",
            "1 M rec/s",
            ours >= 1e6,
            data,
        )
    ]
    for what in ("arrays of the notebook", "binary"):
        first = rates.first[what]
        figures.append(
            Figure(
                11,
                f"feed: cell to first batch, {what}",
                "–",
                f"{median(first):.2f} [{min(first):.2f}, {max(first):.2f}] s",
                "–",
                "–",
                None,
                data,
            )
        )
    for frame, kind, bar in (("arrays", "list", 25), ("binary", "bytes", 30)):
        theirs = of.get(f"tfos {kind}")
        anchor = median(theirs) if theirs else QUOTED[kind]
        ours, floor = median(of[frame]), median(of[f"{frame}, discarded"])
        named = f"TFoS {kind} {_rate(theirs) if theirs else f'{anchor:,.0f} rec/s (quoted)'}"
        figures.append(
            Figure(
                11,
                f"feed from Spark: {frame}",
                named,
                _rate(of[frame]),
                f"÷ = {ours / anchor:.0f}",
                f"{bar} ×",
                ours >= bar * anchor,
                data,
            )
        )
        figures.append(
            Figure(
                11,
                f"feed from Spark: {frame}",
                f"discarded {_rate(of[f'{frame}, discarded'])}",
                _rate(of[frame]),
                f"÷ = {ours / floor:.2f}",
                "0.85",
                ours >= 0.85 * floor,
                data,
            )
        )
        two, both = median(of[f"{frame}, two workers"]), median(of[f"{frame}, discarded, two workers"])
        figures.append(
            Figure(
                11,
                f"feed from Spark: {frame}, two workers",
                f"discarded {both:,.0f} rec/s",
                _rate(of[f"{frame}, two workers"]),
                f"÷ = {two / both:.2f}",
                "0.80 with free cores",
                two >= 0.8 * both if _FREE else None,
                data,
            )
        )
    return figures
