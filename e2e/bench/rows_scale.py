"""A driver with thousands of agents, simulated over real connections, beside the driver before it was made linear."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

from measure import Figure, Options
from workplace import DEADLINE, BenchError, Missing, Workplace

ROOT = pathlib.Path(__file__).parents[2]
# Of 3000 agents: CPU seconds from start to all entered and for a line each and the ends, MB to agents. Measured before
# (research/walk-faults.md, F8).
BEFORE = {"entered": 15.6, "ended": 12.9, "sent": 507}


def scale(place: Workplace, options: Options) -> list[Figure]:
    """Joins and memory of many agents; CPU and bytes of a start."""
    if not shutil.which("go"):
        raise Missing("go is missing")
    sim = place.folder / "sim"
    built = subprocess.run(["go", "build", "-o", sim, "./e2e/sim"], cwd=ROOT, capture_output=True, text=True)
    if built.returncode:
        raise BenchError(f"build the simulation: {built.stderr.strip()[-1000:]}")
    options.say("scale: 3000 agents")
    start = simulate(place, sim, 3000)
    options.say("scale: 5000 agents")
    join = simulate(place, sim, 5000)
    return [
        Figure(
            9,
            "5000 agents: from the first dial until all are ready",
            "–",
            f"{join['joined_seconds']:.1f} s, {join['joined_cpu_seconds']:.1f} s of the driver's CPU",
            f"{5000 / join['joined_seconds']:.0f} a second",
            "10 s",
            join["joined_seconds"] <= 10,
            join,
        ),
        Figure(
            9,
            "5000 agents: the driver's memory when ready",
            "–",
            f"{join['ready_rss_bytes'] / 1e6:.0f} MB, {join['peak_rss_bytes'] / 1e6:.0f} MB at most in a run",
            f"{join['ready_rss_bytes'] / 5e6:.0f} kB an agent",
            "1000 MB",
            join["ready_rss_bytes"] <= 1e9,
        ),
        Figure(
            9,
            "3000 agents: the driver's CPU, start → all entered",
            f"before {BEFORE['entered']} s (quoted)",
            f"{start['entered_cpu_seconds']:.2f} s, in {start['entered_seconds']:.1f} s",
            f"÷ {BEFORE['entered']} s = {start['entered_cpu_seconds'] / BEFORE['entered']:.2g}",
            "5 s",
            start["entered_cpu_seconds"] <= 5,
            start,
        ),
        Figure(
            9,
            "3000 agents: the driver's CPU, a line of each task and its end",
            f"before {BEFORE['ended']} s (quoted)",
            f"{start['ended_cpu_seconds']:.2f} s, in {start['ended_seconds']:.1f} s",
            f"÷ {BEFORE['ended']} s = {start['ended_cpu_seconds'] / BEFORE['ended']:.2g}",
            "–",
            None,
        ),
        Figure(
            9,
            "3000 agents: bytes to them, start → all entered",
            f"before {BEFORE['sent']} MB (quoted)",
            f"{start['entered_bytes'] / 1e6:.0f} MB",
            f"÷ {BEFORE['sent']} MB = {start['entered_bytes'] / 1e6 / BEFORE['sent']:.2g}",
            "–",
            None,
        ),
    ]


def simulate(place: Workplace, sim: pathlib.Path, agents: int) -> dict[str, Any]:
    """What a simulation of so many agents says."""
    env = {**place.env, "TMPDIR": str(place.folder)}
    done = subprocess.run([sim, "-agents", str(agents)], env=env, capture_output=True, text=True, timeout=2 * DEADLINE)
    if done.returncode:
        raise BenchError(f"the simulation of {agents} agents: {done.stderr.strip()[-1000:]}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said
