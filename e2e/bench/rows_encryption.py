"""Row curve: what encrypted channels (CURVE) cost, beside the same kernel without."""

from __future__ import annotations

import time

import zmq
from jupyter_client.manager import KernelManager
from measure import Figure, Options, median
from workplace import BenchError, Kernel, Missing, Workplace, cpu_seconds

POLICIES = ("disabled", "required")  # of transport_encryption
MEGABYTES = 10
PRINTS = f"print('x' * {MEGABYTES}_000_000)"

Samples = dict[str, list[float]]


def encryption(place: Workplace, options: Options) -> list[Figure]:
    """The start of a kernel, `1+1`, and a large output, with and without encryption, turn about."""
    if not hasattr(KernelManager, "transport_encryption") or not zmq.has("curve"):
        raise Missing("jupyter_client 8.9 or newer, and a libzmq with CURVE")
    rounds, blocks = options.times(200, 100), options.times(5, 3)
    starts, least, middle, cpu, prints = ({policy: [] for policy in POLICIES} for _ in range(5))
    for n in range(blocks):
        options.say(f"kernel with and without encryption: pair {n + 1} of {blocks}")
        for policy in POLICIES if n % 2 else reversed(POLICIES):
            for _ in range(2):
                began = time.monotonic()
                with place.kernel("tfcluster", policy):
                    starts[policy].append(time.monotonic() - began)
        _block(place, rounds, least, middle, cpu, prints)
    return [
        _figure("start of a kernel until it is ready, s", starts, 2),
        _figure(f"`1+1`, least ms of {rounds}", least, 2),
        _figure(f"`1+1`, median ms of {rounds}", middle, 2),
        _figure("`1+1`, CPU ms", cpu, 2),
        _figure(f"a cell that prints {MEGABYTES} MB, ms", prints, 0),
    ]


def _block(place: Workplace, rounds: int, least: Samples, middle: Samples, cpu: Samples, prints: Samples) -> None:
    """A fresh pair of kernels; which of them comes first changes each time."""
    with place.kernel("tfcluster", "disabled") as clear, place.kernel("tfcluster", "required") as encrypted:
        pair = [("disabled", clear), ("required", encrypted)]
        for policy, kernel in pair:
            if kernel.encrypted != (policy == "required"):
                raise BenchError(f"transport_encryption {policy}, but the channels are the other way: make install")
        for _ in range(20):
            for _, kernel in pair:
                kernel.ok("1+1")
        times: Samples = {policy: [] for policy in POLICIES}
        before = {policy: cpu_seconds(kernel.pid) for policy, kernel in pair}
        for _ in range(rounds):
            for policy, kernel in pair:
                times[policy].append(kernel.ok("1+1").seconds * 1e3)
            pair.reverse()
        for policy, kernel in pair:
            least[policy].append(min(times[policy]))
            middle[policy].append(median(times[policy]))
            cpu[policy].append((cpu_seconds(kernel.pid) - before[policy]) / rounds * 1e3)
        for _ in range(3):
            for policy, kernel in pair:
                prints[policy].append(_printed(kernel))
            pair.reverse()


def _printed(kernel: Kernel) -> float:
    cell = kernel.ok(PRINTS)
    if len(cell.text) != MEGABYTES * 1_000_000 + 1:
        raise BenchError(f"{len(cell.text)} bytes of output arrived")
    return cell.seconds * 1e3


def _figure(what: str, samples: Samples, digits: int) -> Figure:
    """The medians side by side, and the median of the pairs' ratios."""
    clear, encrypted = (samples[policy] for policy in POLICIES)
    ratios = [ours / theirs for theirs, ours in zip(clear, encrypted, strict=True)]
    return Figure(
        13,
        what,
        f"clear text {median(clear):.{digits}f}",
        f"CURVE {median(encrypted):.{digits}f}",
        f"x {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, n={len(ratios)})",
        "–",
        None,
        {"samples": samples},
    )
