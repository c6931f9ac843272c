"""What a row of the table is, and the arithmetic behind it."""

from __future__ import annotations

import math
import os
import pathlib
import platform
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One line of the table: a thing measured beside its reference, and what the bar says of it.

    Values are texts as printed; holds is what the bar says of the unrounded value, and data has every sample.
    """

    row: int
    what: str
    reference: str
    ours: str
    compared: str
    bar: str
    holds: bool | None  # None where the design has no bar
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The figure with its samples."""
        return asdict(self)


@dataclass(frozen=True)
class Options:
    """How often each thing is repeated, and where progress is told."""

    quick: bool
    pairs: int
    say: Callable[[str], None]

    def times(self, full: int, quick: int) -> int:
        """The repetitions of a row."""
        return quick if self.quick else full


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float], unit: str = "s", digits: int = 2) -> str:
    """Median and worst of some samples, as text."""
    return f"{median(values):.{digits}f} {unit} (worst {max(values):.{digits}f}, n={len(values)})"


def bootstrap(ratios: Sequence[float], rounds: int = 10_000) -> tuple[float, float, float]:
    """The geometric mean of paired ratios with its 95 % interval.

    Pairs are drawn anew with replacement; the generator is seeded, so the same samples give the same interval.
    """
    logs = [math.log(r) for r in ratios]
    draw = random.Random(20260101)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(rounds))
    low, high = means[int(rounds * 0.025)], means[int(rounds * 0.975)]
    return math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high)


def load() -> str:
    """The load averages, as text."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def machine() -> list[str]:
    """Facts without which no figure means anything."""
    cores = len(os.sched_getaffinity(0))
    model = memory = ""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = f"{int(line.split()[1]) / (1 << 20):.1f} GiB"
    lines = [
        f"machine: {cores} cores ({model or platform.machine()}), {memory}, Linux {platform.release()}, "
        f"Python {platform.python_version()}",
        f"load average before the first row: {load()}",
    ]
    if os.getloadavg()[0] > cores / 2:
        lines.append(
            f"The machine is not idle: a load of {os.getloadavg()[0]:.2f} on {cores} cores. Both sides of a row suffer"
        )
        lines.append("alike, turn about, but times are longer and spread wider than on an idle machine.")
    return lines


def table(figures: Sequence[Figure]) -> str:
    """The figures as plain text, aligned."""
    head = ("", "what", "reference", "tfcluster", "compared", "bar", "holds")
    says = {True: "yes", False: "NO", None: "–"}
    rows = [head] + [(str(f.row), f.what, f.reference, f.ours, f.compared, f.bar, says[f.holds]) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
