"""The task's end of the control socket: JSON lines to and from the agent.

Reports of progress never block: they are merged, and a thread sends at most five a
second. Once a second it also sends the program's activity (tfcluster.activity). Other
messages are written at once. If the agent has exited, writing is skipped silently: the
task will be ended.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfcluster import activity
from tfcluster.steps import StepCounter

REPORT_INTERVAL = 0.2  # seconds between two reports

_NO_AGENT = "the process of tfcluster on this executor (its agent) has ended, so the run is over; its log says why"


class Channel:
    """One task's control socket. All methods may be called from any thread.

    steps counts the program's steps, and activity records its progress, for callers that report it.
    """

    def __init__(self, sock: socket.socket | None) -> None:
        self.steps = StepCounter()
        self.activity = activity.Activity(self._start_reporter)
        self._socket = sock
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._write = threading.Lock()
        self._activity_order = threading.Lock()  # an older state is not sent after a newer one
        self._last_activity = 0.0
        self._state = threading.Condition()
        # Guarded by _state.
        self._pending: dict[str, Any] = {}
        self._reporter: threading.Thread | None = None
        self._reader: threading.Thread | None = None
        self._last_report = 0.0
        self._released: dict[str, list[str]] = {}
        self._copies = 0
        self._copied: dict[str, dict[str, Any]] = {}
        self._services: dict[str, dict[str, Any]] = {}  # the agent's answers by operation
        self.last_report: dict[str, float] = {}
        self.evaluated: dict[str, float] = {}  # metrics of the last model.evaluate
        self._training_over = False
        self._gone = sock is None

    def send(self, op: str, **fields: Any) -> None:
        """Writes one message; blocks while the socket is full."""
        sock = self._socket
        if sock is None:
            return
        line = json.dumps({"op": op, **fields}, allow_nan=False).encode() + b"\n"
        with self._write:
            try:
                sock.sendall(line)
            except OSError:
                with self._state:
                    self._gone = True

    def report(self, fields: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Merges a report into the next one to send; does not block."""
        with self._state:
            if self._gone:
                return
            self._pending.update(fields)
            self._pending.setdefault("metrics", {}).update(metrics)
            self.last_report.update(metrics)
            self._state.notify_all()
        self._start_reporter()

    def _start_reporter(self) -> None:
        with self._state:
            if self._reporter is None and not self._gone:
                self._reporter = threading.Thread(target=self._report_loop, name="tfcluster-report", daemon=True)
                self._reporter.start()

    def flush(self) -> None:
        """Sends the merged report and the program's present activity."""
        self._send_report()
        self._send_activity()

    def _send_report(self) -> None:
        with self._state:
            pending, self._pending = self._pending, {}
            self._last_report = time.monotonic()
        if pending:
            self.send("report", wall_time=time.time(), **pending)

    def _send_activity(self) -> None:
        with self._activity_order:
            self._last_activity = time.monotonic()
            if changes := self.activity.changes():
                self.send("activity", **changes)

    def _report_loop(self) -> None:
        while not self._gone:
            with self._state:
                if not self._pending:
                    self._state.wait(activity.INTERVAL)
                pending = bool(self._pending)
                wait = self._last_report + REPORT_INTERVAL - time.monotonic()
            if pending:
                time.sleep(max(0.0, wait))
                self._send_report()
            if time.monotonic() - self._last_activity >= activity.INTERVAL:
                self._send_activity()

    def wait_barrier(self, name: str, timeout: float | None) -> None:
        """Enters a barrier and waits for all tasks."""
        self.listen()
        self.send("barrier", name=name)
        with self._state:
            if not self._wait(lambda: bool(self._released.get(name)) or self._gone, timeout):
                raise TimeoutError(
                    f"barrier {name!r}: not every task arrived within {timeout:g} s: see the logs of the others, "
                    "or give "
                    "a longer timeout"
                )
            if not self._released.get(name):
                raise ConnectionError(f"barrier {name!r}: {_NO_AGENT}")
            error = self._released[name].pop(0)
        if error:
            raise RuntimeError(f"barrier {name!r}: {error}")

    def copy(self, uri: str, share: tuple[int, int] | None) -> list[str]:
        """Asks the agent to copy files of HDFS to this executor's disk; returns the paths of the copies."""
        self.listen()
        with self._state:
            self._copies += 1
            name = str(self._copies)
        self.send("copy", name=name, uri=uri, share=list(share or ()))
        with self._state:
            self._wait(lambda: name in self._copied or self._gone, None)  # the agent has its own timeout
            answer = self._copied.pop(name, None)
        if answer is None:
            raise ConnectionError(f"ctx.local_copy({uri!r}): {_NO_AGENT}")
        if error := answer.get("error"):
            raise (FileNotFoundError if answer.get("missing") else OSError)(f"ctx.local_copy: {error}")
        return [str(path) for path in answer.get("paths") or ()]

    def service(self, op: str, caller: str) -> tuple[str, str]:
        """Asks the agent for a service of this task, "feed" or "group"; returns its socket and its key."""
        self.listen()
        with self._state:
            if (self._services.get(op) or {}).get("error"):  # of an earlier call: this one may succeed
                del self._services[op]
        self.send(op)
        with self._state:
            self._wait(lambda: op in self._services or self._gone, None)
            answer = self._services.get(op)
        if not answer:
            raise ConnectionError(f"{caller}: {_NO_AGENT}")
        if error := answer.get("error"):
            raise OSError(f"{caller}: {error}")
        return str(answer["socket"]), str(answer["key"])

    def training_over(self) -> bool:
        """Reports whether training has ended: by the agent's message or exit, or by SIGTERM."""
        self.listen()
        with self._state:
            return self._training_over or self._gone

    def wait_training_over(self, timeout: float) -> bool:
        """Waits up to timeout seconds for the end of training; reports whether it has ended."""
        self.listen()
        with self._state:
            return self._wait(lambda: self._training_over or self._gone, timeout)

    def _wait(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Waits for predicate, at most timeout seconds; reports whether it is true. Called with _state held.

        It waits in short steps: a signal just before a long wait would be handled only after it.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not predicate():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._state.wait(min(left, 0.5))
        return True

    def set_training_over(self) -> None:
        """Makes training_over true; safe in a signal handler of the main thread."""
        self._training_over = True

    def on(self, op: str, handler: Callable[[dict[str, Any]], None]) -> None:
        """Registers a handler for a kind of message; the channel's thread calls it. Call it before listen."""
        self._handlers[op] = handler

    def listen(self) -> None:
        """Starts the thread that reads the agent's messages."""
        with self._state:
            if self._reader is None and self._socket is not None:
                self._reader = threading.Thread(target=self._read_loop, name="tfcluster-control", daemon=True)
                self._reader.start()

    def reader(self) -> threading.Thread:
        """Returns the thread that reads the agent's messages and calls the handlers."""
        self.listen()
        if self._reader is None:
            raise RuntimeError("this process has no agent: only a program that %tfcluster start runs has one")
        return self._reader

    def _read_loop(self) -> None:
        assert self._socket is not None
        try:
            with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
                for line in lines:
                    with contextlib.suppress(Exception):  # an error of one message must not end the thread
                        self._handle(json.loads(line))
        finally:
            with self._state:
                self._gone = True
                self._state.notify_all()

    def _handle(self, message: dict[str, Any]) -> None:
        if handler := self._handlers.get(str(message.get("op"))):
            handler(message)
            return
        with self._state:
            if message.get("op") == "barrier_released":
                self._released.setdefault(str(message.get("name", "")), []).append(str(message.get("error") or ""))
            elif message.get("op") == "copied":
                self._copied[str(message.get("name", ""))] = message
            elif (op := str(message.get("op"))) in ("feed", "group"):
                self._services[op] = message
            elif message.get("op") == "training_over":
                self._training_over = True
            self._state.notify_all()


def number(value: Any) -> float | None:
    """Returns value as a finite float; None if it is not one (a string, NaN, an array)."""
    try:
        as_float = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return as_float if math.isfinite(as_float) else None
