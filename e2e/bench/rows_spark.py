"""Row 4 on Spark: start, start again and shut down beside TensorFlowOnSpark, on one standalone cluster in one run."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from measure import Figure, Options, median, spread
from rows_cluster import ENTER, entered, imported
from standalone import Standalone
from workplace import DEADLINE, BenchError, Kernel, Missing, Workplace

ROOT = pathlib.Path(__file__).parents[2]
QUOTED = {"cold": 6.6, "again": 2.3, "shutdown": 5.4}
RESERVE = "%tfcluster reserve --backend spark --workers 2 --idle 5m"
SESSION = """
import time
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("{url}").getOrCreate()
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.02)
"""


class Samples:
    """Seconds by what was measured, and the way to measure each."""

    def __init__(
        self, place: Workplace, spark: Standalone, tfos: pathlib.Path | None, say: Callable[[str], None]
    ) -> None:
        self.place = place
        self.say = say
        self.spark = spark
        self.tfos = tfos
        self.seconds: dict[str, list[float]] = {}

    def add(self, what: str, *seconds: float) -> None:
        """Keep what was measured."""
        self.seconds.setdefault(what, []).extend(seconds)

    def sides(self) -> list[Any]:
        """What is measured turn about."""
        return [self.imports, self.session, self.floor, *([self.anchor] if self.tfos else []), self.master]

    def imports(self) -> None:
        """Two Pythons that import TensorFlow at once."""
        self.add("import", imported(self.place))

    def session(self) -> None:
        """Tfcluster on a notebook's session that has its executors, as TensorFlowOnSpark's users have it."""
        with self.place.kernel("tfcluster") as kernel:
            kernel.ok(SESSION.format(url=self.spark.url))
            self._run(kernel, RESERVE, "cold", "again", "shutdown")
            kernel.ok("spark.stop()")

    def master(self) -> None:
        """Tfcluster with no session: reserve makes one."""
        with self.place.kernel("tfcluster") as kernel:
            self._run(kernel, f"{RESERVE} --master {self.spark.url}", "master", "master again", "master shutdown")

    def _run(self, kernel: Kernel, reserve: str, cold: str, again: str, shutdown: str) -> None:
        kernel.ok(ENTER)
        self.add(cold, entered(kernel, f"{reserve}\n"))
        self.add(again, *(entered(kernel) for _ in range(2)))
        self.add(shutdown, kernel.ok("%tfcluster shutdown").seconds)

    def floor(self) -> None:
        """The least stage that a fresh session can run, in each of Spark's ways."""
        for way in ("pipe", "rdd", "arrow"):
            said = self._program(way)
            self.add(f"{way} session", said["session"])
            self.add(way, said["stage"])
            self.spark.free()

    def anchor(self) -> None:
        """TensorFlowOnSpark on a session that has its executors. Where it fails, its other rounds stand."""
        try:
            said = self._program("tfos")
        except BenchError as e:
            self.say(f"{e}")
            return
        self.add("tfos cold", said["entered"][0])
        self.add("tfos again", *said["entered"][1:])
        self.add("tfos shutdown", *said["shutdown"])

    def _program(self, what: str) -> dict[str, Any]:
        folder = tempfile.mkdtemp(dir=self.place.folder)
        path = {"PYTHONPATH": str(self.tfos)} if what == "tfos" else {}
        command = [self.place.python, str(ROOT / "e2e" / "bench" / "spark_program.py"), what, self.spark.url, folder]
        done = subprocess.run(
            command,
            env={**self.place.env, **path},
            cwd=self.place.work,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        if done.returncode:
            raise BenchError(f"{what} on Spark: {done.stderr.strip()[-1000:]}")
        return json.loads(done.stdout)


def cold(place: Workplace, options: Options) -> list[Figure]:
    """reserve and start on executors of one core that Spark has ready."""
    try:
        tfos, why = _tensorflowonspark(place), ""
    except Missing as e:
        tfos, why = None, str(e)
        options.say(f"{why}: its figures are quoted")
    with Standalone(place) as spark:
        samples = Samples(place, spark, tfos, options.say)
        sides = samples.sides()
        for n in range(options.times(3, 1)):
            for side in sides[n % len(sides) :] + sides[: n % len(sides)]:
                options.say(f"Spark, round {n + 1}: {side.__name__}")
                side()
                spark.free()
    return _figures(samples.seconds)


def _tensorflowonspark(place: Workplace) -> pathlib.Path:
    """The folder with that package alone: all that it needs, .venv has."""
    folder = ROOT / ".tfos"
    if not (folder / "tensorflowonspark").is_dir():
        command = [place.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "-r", str(ROOT / "requirements" / "tfos.txt"), "--target", str(folder)]
        done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Missing(f"tensorflowonspark is missing ({done.stderr.strip().splitlines()[-1:]})")
    return folder


def _figures(seconds: dict[str, list[float]]) -> list[Figure]:
    cold, plain = median(seconds["cold"]), median(seconds["import"])
    own = [s + stage for s, stage in zip(seconds["pipe session"], seconds["pipe"], strict=True)]
    return [
        Figure(
            4,
            "Spark: reserve + start, cold, session there",
            f"2 imports at once {spread(seconds['import'])}",
            spread(seconds["cold"]),
            f"{cold - plain:+.2f} s",
            "+1.00 s",
            cold <= plain + 1,
            {"seconds": seconds},
        ),
        _beside_tfos("the same", "cold", seconds, None),
        _beside_tfos("start again", "again", seconds, 1.0),
        _beside_tfos("shutdown", "shutdown", seconds, 0.5),
        Figure(
            4,
            "Spark: least stage of a fresh session",
            f"barrier: RDD {spread(seconds['rdd'])}; mapInArrow {spread(seconds['arrow'])}",
            f"pipe {spread(seconds['pipe'])}",
            f"÷ RDD's = {median(seconds['pipe']) / median(seconds['rdd']):.2g}",
            "–",
            None,
        ),
        Figure(
            4,
            "Spark: reserve + start, cold, by --master",
            f"session + that stage {spread(own)}",
            spread(seconds["master"]),
            f"{median(seconds['master']) - median(own):+.2f} s",
            "–",
            None,
        ),
    ]


def _beside_tfos(name: str, what: str, seconds: dict[str, list[float]], bar: float | None) -> Figure:
    """A figure as a part of TensorFlowOnSpark's."""
    theirs, ours = seconds.get(f"tfos {what}"), median(seconds[what])
    anchor = median(theirs) if theirs else QUOTED[what]
    return Figure(
        4,
        f"Spark: {name}",
        f"TFoS {spread(theirs)}" if theirs else f"TFoS {anchor} s (quoted)",
        spread(seconds[what]),
        f"÷ {anchor:.2g} s = {ours / anchor:.2g}",
        f"{bar:.2f} s" if bar else "–",
        ours <= bar if bar else None,
    )
