"""How long after its limit the automatic check shows the line about a run that stalls."""

from __future__ import annotations

import json
import time

from measure import Figure, Options, median
from workplace import DEADLINE, BenchError, Workplace

ROW = 20
LIMIT = 10.0  # seconds without a step, where steps take less than a third of that
BAR = 10.0  # seconds after the limit
PROGRAM = """%%tfcluster start
import os, pathlib, time, numpy as np, tfcluster
import tfcluster.collective as collective
ctx = tfcluster.context()
for step in range(1, 50):
    collective.all_reduce(np.ones(4))
    ctx.report(step=step)
    time.sleep(0.05)
if ctx.worker_num:
    pathlib.Path("stalled").write_text(str(time.time()))
    time.sleep(600)
collective.all_reduce(np.ones(4))
"""


def why(place: Workplace, options: Options) -> list[Figure]:
    """Seconds from the limit to the line, of runs of four tasks that stall."""
    late: list[float] = []
    text = ""
    mark = place.work / "stalled"
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 4 --framework none")
        for n in range(options.times(5, 1)):
            options.say(f"stall {n + 1}")
            mark.unlink(missing_ok=True)
            kernel.ok(PROGRAM)
            text, seen = _line(place)
            late.append(seen - float(mark.read_text()) - LIMIT)
            kernel.ok("%tfcluster reset")
        kernel.ok("%tfcluster shutdown")
    holds = max(late) <= BAR and "worker:1" in text
    return [
        Figure(
            ROW,
            f"stall → line of the automatic check, s after its limit, of {len(late)}",
            "–",
            f"{median(late):.1f} (worst {max(late):.1f})",
            "–",
            f"{BAR:.0f} s",
            holds,
            {"seconds": late, "line": text},
        )
    ]


def _line(place: Workplace) -> tuple[str, float]:
    """Return the line and when it was there."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if text := json.loads(place.call("status", "--json"))["run"]["stall"]:
            return text, time.time()
        time.sleep(0.1)
    raise BenchError("the automatic check shows no line")
