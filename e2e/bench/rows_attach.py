"""attach to a cluster whose driver died, with 5 GB of lines in its directory."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time

from measure import Figure, Options, median, spread
from workplace import DEADLINE, BenchError, Workplace

SEGMENT = 16 << 20  # bytes, as the log store cuts them
SEGMENTS = 320  # 5 GiB
LINE = b"2026-01-02T03:04:05.000000000Z E a line of sixty-four bytes, as programs write them\n"
PROGRAM = "%%tfcluster start --wait\nprint('here')"


def attach(place: Workplace, options: Options) -> list[Figure]:
    """Seconds until attach has answered: a driver that takes the cluster over must not read what is there."""
    values: list[float] = []
    runs = place.folder / "runs"
    with place.kernel("tfcluster") as kernel:
        kernel.ok(f"%tfcluster reserve --workers 1 --framework none --dir {runs}")
        kernel.ok(PROGRAM)
        fill(runs / "run-001" / "tasks" / "worker-0")
        for n in range(options.times(5, 2)):
            options.say(f"attach, round {n + 1}")
            driver = driver_of(place)
            os.kill(driver, signal.SIGKILL)
            end = time.monotonic() + DEADLINE
            while pathlib.Path(f"/proc/{driver}").exists():
                if time.monotonic() > end:
                    raise BenchError("the driver does not end")
                time.sleep(0.01)
            cell = kernel.ok("%tfcluster attach")
            values.append(cell.answered - cell.sent)
        if "a line of sixty-four bytes" not in kernel.ok("%tfcluster logs -n 1").all:
            raise BenchError("the last line is not shown")
        kernel.ok("%tfcluster shutdown")
    return [
        Figure(
            10,
            "attach to a cluster with 5 GB of lines",
            "itself before: > 5 s, then refused (quoted)",
            spread(values),
            f"÷ 5 s = {median(values) / 5:.2g}",
            "1.00 s",
            median(values) <= 1,
            {"seconds": values},
        )
    ]


def fill(folder: pathlib.Path) -> None:
    """Segments of 5 GB in all. All but the last are holes: whoever reads them still takes seconds."""
    first = 0
    for path in folder.glob("*.log"):
        first = max(first, path.read_bytes().count(b"\n"))
    lines = SEGMENT // len(LINE)
    for n in range(SEGMENTS):
        with (folder / f"{first + n * lines:012d}.log").open("wb") as segment:
            if n == SEGMENTS - 1:
                segment.write(LINE * lines)
            else:
                segment.truncate(SEGMENT)


def driver_of(place: Workplace) -> int:
    """The driver's pid, by the cluster's state."""
    (state,) = place.folder.glob("state/*/*/state.json")
    return int(json.loads(state.read_text())["driver"]["pid"])
