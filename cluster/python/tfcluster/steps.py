"""The steps that a program ends, and the agreed step: the one at whose end all tasks act.

Tasks that train in lockstep wait for one another in collectives. One that stops in the
middle of a step leaves its peers blocked in native code, where no signal reaches
them. So the driver asks every task for its step and names one that lies ahead of all
of them. When every task has answered that it has not passed this step, the driver
confirms it, and each task acts at its end. A task that ends it before the confirmation waits:
it may be that another has passed it, and that a later step is named.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_SMOOTHING = 0.3  # weight of the last interval in the usual one
_HOLD = 2.0  # seconds that a task waits at the end of a step for the others' agreement


@dataclass
class _Agreed:
    """What is to be done at the end of a step."""

    counter: str
    step: int
    action: Callable[[], None]
    given_up: Callable[[], None]
    confirmed: bool = False  # by every task


class StepCounter:
    """Counts a program's steps. next_batch and step_ended act, and so belong to the thread that trains.

    There are two ways to count: Keras' callback counts batches ("keras"), and a
    program's own loop names its steps by ctx.report(step=) ("ctx"). While Keras trains,
    only the former counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        # Guarded by _lock.
        self._counter = ""
        self._step = 0
        self._stride = 1
        self._interval = 0.0
        self._last = 0.0
        self._batches = 0
        self._fits = 0  # that run now, one inside another
        self._agreed: _Agreed | None = None

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """While Keras trains: steps that the program itself names do not count."""
        with self._lock:
            self._fits += 1
        try:
            yield
        finally:
            with self._lock:
                self._fits -= 1

    def next_batch(self) -> None:
        """Keras begins a batch, of training or of validation: those before have ended."""
        with self._lock:
            action = self._ended("keras", self._batches)
            self._batches += 1
        if action:
            action()

    def step_ended(self, step: int) -> None:
        """The program says that it has ended this step."""
        with self._lock:
            action = None if self._fits else self._ended("ctx", step)
        if action:
            action()

    def _ended(self, counter: str, step: int) -> Callable[[], None] | None:
        """Notes a step's end; returns what is to be done now. Called with _lock held."""
        now = time.monotonic()
        if counter == self._counter and step > self._step:
            self._stride = step - self._step
            interval = now - self._last
            weight = _SMOOTHING if self._interval else 1.0
            self._interval += weight * (interval - self._interval)
        self._counter, self._step, self._last = counter, step, now
        agreed = self._agreed
        if agreed is None or agreed.counter != counter or step < agreed.step:
            return None
        until = now + _HOLD
        while self._agreed is agreed and not agreed.confirmed and (left := until - time.monotonic()) > 0:
            self._lock.wait(left)
        if self._agreed is not agreed:  # a later step was named, or nothing is to be done any more
            return None
        self._agreed = None
        return agreed.action if agreed.confirmed else agreed.given_up

    def position(self) -> dict[str, Any]:
        """The last step that has ended, in the fields of the answer to the driver; {} where no step was counted yet."""
        with self._lock:
            if not self._counter or (self._fits and self._counter != "keras"):
                return {}
            return {
                "counter": self._counter,
                "step": self._step,
                "stride": self._stride,
                "report_seconds": self._interval,
            }

    def act_at(
        self, counter: str, step: int, action: Callable[[], None], given_up: Callable[[], None] = lambda: None
    ) -> bool:
        """Has the thread that ends this step call action then, once that is confirmed. False: it has ended already.

        given_up is called where the confirmation does not come in time, and the program goes on.
        """
        with self._lock:
            passed = self._counter == counter and self._step >= step
            self._agreed = None if passed else _Agreed(counter, step, action, given_up)
            self._lock.notify_all()
            return not passed

    def confirm(self, counter: str, step: int) -> None:
        """Every task acts at this step."""
        with self._lock:
            if self._agreed and (self._agreed.counter, self._agreed.step) == (counter, step):
                self._agreed.confirmed = True
                self._lock.notify_all()

    def forget(self) -> None:
        """Nothing is to be done at a step's end any more. Safe in a signal handler."""
        self._agreed = None
