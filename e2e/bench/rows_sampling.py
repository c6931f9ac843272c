"""What the samples of tasks and GPUs cost an agent, from benchmarks in Go."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

from measure import Figure, Options
from workplace import DEADLINE, BenchError, Missing, Workplace

ROOT = pathlib.Path(__file__).parents[2]
BAR = 0.2  # percent of a core
# What happens in each interval, the package and name of its benchmark, and the interval in seconds. nvidia-smi itself
# and the connection, on which heartbeats are sent without samples too, are not in it.
PARTS = (
    ("a heartbeat with four tasks", "./cluster/agent", "Heartbeat", 1.0),
    ("the lines of nvidia-smi for eight GPUs", "./cluster/agent/gpu", "SMILines", 2.0),
)


def sampling(place: Workplace, options: Options) -> list[Figure]:
    """Percent of a core that an agent takes for samples."""
    if not shutil.which("go"):
        raise Missing("go is missing")
    total = 0.0
    said = {}
    for what, package, name, interval in PARTS:
        options.say(f"sampling: {what}")
        seconds = benchmark(package, name, options.times(3, 1))
        said[what] = seconds
        total += 100 * seconds / interval
    parts = ", ".join(f"{what} {seconds * 1e6:.0f} µs" for what, seconds in said.items())
    return [
        Figure(
            17,
            "an agent's samples",
            parts,
            f"{total:.4f} % of a core",
            "–",
            f"{BAR} %",
            total <= BAR,
            {"seconds": said},
        )
    ]


def benchmark(package: str, name: str, seconds: int) -> float:
    """Seconds of one iteration of a benchmark."""
    command = ["go", "test", "-run", "^$", "-bench", f"^Benchmark{name}$", "-benchtime", f"{seconds}s", package]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    found = re.search(rf"Benchmark{name}\S*\s+\d+\s+([\d.]+) ns/op", done.stdout)
    if found is None:
        raise BenchError(f"the benchmark {name}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return float(found[1]) / 1e9
