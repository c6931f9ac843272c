"""What the JupyterLab panel costs kernel and driver, and how soon it shows what a click did."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import time
import uuid
from collections.abc import Callable
from typing import Any

from measure import Figure, Options, median
from workplace import DEADLINE, BenchError, Kernel, Workplace

TARGET = "tfcluster.v1"
PING = 10.0  # seconds
CPU_BAR = 2.0  # percent of a core
CLICK_BAR = 200.0  # milliseconds
PROGRAM = """%%tfcluster start
import time, tfcluster
ctx = tfcluster.context()
for step in range(1, 1_000_000):
    ctx.report(step=step, loss=1 / step)
    print("step", step, flush=True)
    time.sleep(0.1)
"""


class Panel:
    """The extension's comm with a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._client = kernel.client
        self._id = uuid.uuid4().hex
        self.messages = 0
        self._send("comm_open", {"target_name": TARGET, "data": {}})
        self._pinged = time.monotonic()

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        message = self._client.session.msg(kind, {"comm_id": self._id, **content})
        self._client.shell_channel.send(message)

    def say(self, **data: Any) -> None:
        """Send a message."""
        self._send("comm_msg", {"data": data})

    def listen(self, seconds: float, found: Callable[[dict[str, Any]], bool]) -> bool:
        """Read the kernel's messages for some seconds, or until one is found."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if time.monotonic() - self._pinged > PING:
                self.say(type="ping")
                self._pinged = time.monotonic()
            try:
                message = self._client.get_iopub_msg(timeout=min(left, 1))
            except queue.Empty:
                continue
            if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == self._id:
                self.messages += 1
                if found(message["content"]["data"]):
                    return True
        return False


def panel(place: Workplace, options: Options) -> list[Figure]:
    """A run that reports ten steps a second, with the panel open and closed turn about; then clicks on stop."""
    seconds, rounds = options.times(30, 5), options.times(5, 2)
    extra: list[float] = []
    open_rate: list[float] = []
    closed = 0
    clicks: list[float] = []
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 2 --framework none")
        kernel.ok(PROGRAM)
        driver = int(json.loads(place.call("status", "--json"))["driver_pid"])
        shown = Panel(kernel)

        def spent() -> float:
            return own_seconds(kernel.pid) + own_seconds(driver)

        def during(kind: str) -> tuple[float, int]:
            shown.say(type=kind, cluster="")
            shown.listen(1, lambda _: False)  # what changes at once is not the cost of watching
            before, messages = spent(), shown.messages
            shown.listen(seconds, lambda _: False)
            return 100 * (spent() - before) / seconds, shown.messages - messages

        for n in range(rounds):
            options.say(f"the panel open and closed for {seconds} s each, round {n + 1} of {rounds}")
            busy, sent = during("show")
            idle, leaked = during("hide")
            extra.append(busy - idle)
            open_rate.append(sent / seconds)
            closed += leaked
        shown.say(type="show", cluster="")
        for n in range(options.times(10, 3)):
            options.say(f"click {n + 1}")
            clicks.append(click(kernel, shown, place))
        kernel.ok("%tfcluster shutdown")
    return [
        Figure(
            18,
            "the panel while a run reports 10 steps/s",
            f"closed: {closed} messages",
            f"{median(extra):.2f} % of a core ({min(extra):.2f} to {max(extra):.2f}), {median(open_rate):.1f}/s",
            "–",
            f"{CPU_BAR:.0f} %, closed 0 messages",
            median(extra) <= CPU_BAR and closed == 0,
            {"percent": extra, "messages_per_second": open_rate},
        ),
        Figure(
            18,
            f"click on stop → state in the panel, ms of {len(clicks)}",
            "–",
            f"{median(clicks):.0f} (worst {max(clicks):.0f})",
            "–",
            f"{CLICK_BAR:.0f} ms",
            median(clicks) <= CLICK_BAR,
            {"milliseconds": clicks},
        ),
    ]


def click(kernel: Kernel, shown: Panel, place: Workplace) -> float:
    """Milliseconds from the message of a click on stop until the panel knows that the run stops."""

    def running(data: dict[str, Any]) -> bool:
        return state_of(data) == "running"

    if state_of_now(place) != "running":
        kernel.send("%tfcluster start --again")
    if not shown.listen(DEADLINE, running):
        raise BenchError("the panel does not show the run")
    cluster = json.loads(place.call("status", "--json"))["name"]
    began = time.monotonic()
    shown.say(type="act", request=1, verb="stop", cluster=cluster)
    if not shown.listen(DEADLINE, lambda data: state_of(data) in ("stopping", "stopped")):
        raise BenchError("the panel does not show the stop")
    took = time.monotonic() - began
    end = time.monotonic() + DEADLINE
    while state_of_now(place) != "stopped":
        if time.monotonic() > end:
            raise BenchError("the stop does not end")
        time.sleep(0.1)
    return took * 1e3


def state_of(data: dict[str, Any]) -> str:
    """The state of the run in a message of the kernel; "" where it has none."""
    run = (data.get("cluster") or {}).get("run") if data.get("type") == "state" else None
    return str(run["state"]) if run else ""


def state_of_now(place: Workplace) -> str:
    """The state of the last run."""
    return str(json.loads(place.call("status", "--json")).get("run", {}).get("state", ""))


def own_seconds(pid: int) -> float:
    """User and system time of a process alone."""
    with contextlib.suppress(OSError):
        words = (pathlib.Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return sum(int(word) for word in words[11:13]) / os.sysconf("SC_CLK_TCK")
    raise BenchError(f"process {pid} has ended")
