"""A message of 4 bytes and its answer: by grpc-go, and by the transports of collective calls."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

from measure import Figure, Options
from workplace import DEADLINE, BenchError, Missing, Workplace

ROOT = pathlib.Path(__file__).parents[2]
SKIPPED = 77  # e2e/rdma/guest.sh: there can be no guest
LINE = re.compile(r"^(gRPC|shared memory|TCP|RDMA)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+) µs$", re.MULTILINE)


def rdma(place: Workplace, options: Options) -> list[Figure]:
    """Microseconds on this machine, and by soft-RoCE in a guest: that says what software takes, not what RDMA does."""
    if not shutil.which("go"):
        raise Missing("go is missing")
    program = ".rdma/transport.test"
    _run(["make", "--no-print-directory", program], {0})
    options.say("rdma: on this machine")
    command = [str(ROOT / program), "-test.run", "TestLatency$"]
    figures = _figures("on this machine", _run(["env", "TFCLUSTER_TEST_LATENCY=1", *command], {0})[1])
    options.say("rdma: in a guest with soft-RoCE")
    code, said = _run(["e2e/rdma/guest.sh", "300", "e2e/rdma/latency.sh", program], {0, SKIPPED}, 600)
    if code == SKIPPED:
        options.say(f"rdma: {said.strip().splitlines()[-1]}")
        return figures
    return figures + _figures("in a guest of qemu", said)


def _run(command: list[str], good: set[int], limit: float = DEADLINE) -> tuple[int, str]:
    """The exit code, one of the good ones, and what the command printed."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
    if done.returncode not in good:
        raise BenchError(f"{' '.join(command)}: {done.stdout[-1000:]}")
    return done.returncode, done.stdout


def _figures(where: str, said: str) -> list[Figure]:
    """One line for each way beside gRPC."""
    found = {way: (float(median), float(large)) for way, _, median, _, large in LINE.findall(said)}
    if "gRPC" not in found:
        raise BenchError(f"the measurement printed no table: {said[-1000:]}")
    grpc, grpc_large = found.pop("gRPC")
    figures = []
    for way, (small, large) in found.items():
        name = "soft-RoCE" if way == "RDMA" else way
        holds, bar = (grpc >= 3 * small, "3 ×") if way == "RDMA" else (None, "–")
        what = f"4 B and an answer by {name}, {where}"
        reference, ours = f"grpc-go {_times(grpc, grpc_large)}", _times(small, large)
        figures.append(Figure(19, what, reference, ours, f"{grpc / small:.1f} ×", bar, holds))
    return figures


def _times(small: float, large: float) -> str:
    """Times in µs as text; the second one is that of 4 MB."""
    return f"{small:.0f} µs; 4 MB {large / 1e3:.1f} ms"
