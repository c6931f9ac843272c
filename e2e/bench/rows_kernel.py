"""Rows 1 and 2: what the kernel adds to a cell, and how it stands a flood of lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from measure import Figure, Options, median
from workplace import BenchError, Kernel, Workplace, cpu_seconds

LINES = 200_000
PRINTS = f"""import time
for i in range({LINES}):
    print("line", i)
print("last", repr(time.time()), flush=True)
"""
LAST = re.compile(r"^(?:\[worker:0\] )?last (\d+\.\d+)$", re.M)
NUMBER = re.compile(r"^(?:\[worker:0\] )?line (\d+)$", re.M)


@dataclass(frozen=True)
class Side:
    """One kernel of a pair: milliseconds of every round trip, and CPU milliseconds an execution."""

    times: list[float]
    cpu: float


Block = dict[str, Side]


def overhead(place: Workplace, options: Options) -> list[Figure]:
    """`1+1` in both kernels turn about: the least time of a round trip, and CPU time.

    The least time differs from one process of the same kernel to the next, so several fresh pairs of kernels are
    taken. The bar is held against the least of all, and against the median of the pairs' differences.
    """
    rounds, blocks = options.times(200, 150), options.times(5, 1)
    samples: list[Block] = []
    for n in range(blocks):
        options.say(f"1+1, {rounds} times in each kernel, turn about: pair of kernels {n + 1} of {blocks}")
        samples.append(_block(place, rounds))
    theirs, ours = ([min(b[name].times) for b in samples] for name in ("plain", "tfcluster"))
    extra = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    middle = median([median(b["tfcluster"].times) - median(b["plain"].times) for b in samples])
    extra_cpu = [b["tfcluster"].cpu - b["plain"].cpu for b in samples]
    return [
        Figure(
            1,
            f"`1+1`, least ms of {rounds * blocks}",
            f"ipykernel {min(theirs):.2f}",
            f"{min(ours):.2f}",
            f"{min(ours) - min(theirs):+.2f} ms (medians differ by {middle:+.2f})",
            "+0.30 ms",
            min(ours) - min(theirs) <= 0.3,
            {"milliseconds": [{name: side.times for name, side in b.items()} for b in samples]},
        ),
        Figure(
            1,
            f"`1+1`, least ms, median of {blocks}",
            f"ipykernel {median(theirs):.2f}",
            f"{median(ours):.2f}",
            f"{median(extra):+.2f} ms ({min(extra):+.2f} to {max(extra):+.2f})",
            "+0.30 ms",
            median(extra) <= 0.3,
            {"milliseconds": {"plain": theirs, "tfcluster": ours}},
        ),
        Figure(
            1,
            "`1+1`, CPU ms",
            f"ipykernel {median([b['plain'].cpu for b in samples]):.2f}",
            f"{median([b['tfcluster'].cpu for b in samples]):.2f}",
            f"{median(extra_cpu):+.2f} ms ({min(extra_cpu):+.2f} to {max(extra_cpu):+.2f})",
            "+0.70 ms",
            median(extra_cpu) <= 0.7,
            {"cpu_milliseconds": [{name: side.cpu for name, side in b.items()} for b in samples]},
        ),
    ]


def _block(place: Workplace, rounds: int) -> Block:
    """A fresh pair of kernels; which of them comes first changes each time."""
    with place.kernel("plain") as plain, place.kernel("tfcluster") as ours:
        kernels = [plain, ours]
        for _ in range(20):
            for kernel in kernels:
                kernel.ok("1+1")
        times: dict[str, list[float]] = {kernel.name: [] for kernel in kernels}
        before = {kernel.name: cpu_seconds(kernel.pid) for kernel in kernels}
        for _ in range(rounds):
            for kernel in kernels:
                times[kernel.name].append(kernel.ok("1+1").seconds * 1e3)
            kernels.reverse()
        return {k.name: Side(times[k.name], (cpu_seconds(k.pid) - before[k.name]) / rounds * 1e3) for k in kernels}


def flood(place: Workplace, options: Options) -> list[Figure]:
    """200,000 lines of a task under wait, beside the same lines printed by a cell of ipykernel."""
    ours: list[float] = []
    theirs: list[float] = []
    kept: list[int] = []
    with place.kernel("plain") as plain, place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 1 --idle 5m")
        for n in range(options.times(3, 1)):
            options.say(f"{LINES:,} lines, round {n + 1}")
            cell = plain.ok(PRINTS)
            theirs.append(cell.idle - _last(cell.text))
            idle, text = _flooded(place, kernel, n)
            ours.append(idle - _last(text))
            numbers = [int(found) for found in NUMBER.findall(text)]
            kept.append(len(numbers))
            if numbers != sorted(set(numbers)):
                raise BenchError("the store has lines twice or out of order")
        kernel.ok("%tfcluster shutdown")
    return [
        Figure(
            2,
            f"{LINES:,} lines: idle after the last",
            f"ipykernel {median(theirs):.2f} s",
            f"{median(ours):.2f} s (worst {max(ours):.2f}, n={len(ours)})",
            f"{median(ours) - median(theirs):+.2f} s",
            "0.30 s",
            median(ours) <= 0.3,
            {"seconds": {"plain": theirs, "tfcluster": ours}},
        ),
        Figure(
            2,
            "lines in the store, in order",
            f"{LINES:,} printed",
            f"{min(kept):,}",
            f"{min(kept) - LINES:+,}",
            "every one",
            min(kept) == LINES,
            {"lines": kept},
        ),
    ]


def _flooded(place: Workplace, kernel: Kernel, n: int) -> tuple[float, str]:
    """One run of the flood under wait; returns when the cell was idle, and what the store holds of it."""
    go = place.work / f"go-{n}"
    kernel.ok(f"%%tfcluster start\nimport os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{PRINTS}")
    request, cell = kernel.send("%tfcluster wait")
    kernel.first_sign(request, cell, 1.0)
    go.touch()
    kernel.finish(request, cell)
    if cell.status != "ok":
        raise BenchError(f"the run of the flood failed: {cell.all[-2000:]}")
    return cell.idle, place.call("logs", "-n", str(10 * LINES))


def _last(text: str) -> float:
    found = LAST.findall(text)
    if not found:
        raise BenchError(f"the last line is missing; the end is {text[-300:]!r}")
    return float(found[-1])
