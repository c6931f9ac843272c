"""A program's steps, and the agreed step: at its end all tasks act.

Tasks that train synchronously wait for one another in collective operations. If one stops
within a step, the others block in native code, where signals are not handled. Therefore
the driver asks every task for its step and names a later one. When every task has
answered that it has not passed this step, the driver confirms it, and each task acts at
its end. A task that ends the step before the confirmation waits, because another may have
passed it, and then a later step is named.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_SMOOTHING = 0.3  # weight of the last interval in the average
_HOLD = 2.0  # seconds that a task waits at the end of a step for the confirmation


@dataclass
class _Agreed:
    """An action at the end of a step."""

    counter: str
    step: int
    action: Callable[[], None]
    given_up: Callable[[], None]
    confirmed: bool = False  # by every task


class StepCounter:
    """The count of a program's steps. The training thread calls next_batch and step_ended, which act.

    There are two counters: the callbacks of Keras, Lightning and Transformers count batches
    ("batches"), and a program's own loop reports its steps by ctx.report(step=) ("ctx").
    While a trainer trains, the latter is ignored.
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
        self._fits = 0  # active calls of fit, which may be nested
        self._agreed: _Agreed | None = None

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """Ignores steps of ctx.report during the context, in which a trainer trains."""
        with self._lock:
            self._fits += 1
        try:
            yield
        finally:
            with self._lock:
                self._fits -= 1

    def trained_by_trainer(self) -> bool:
        """Reports whether a trainer trains now."""
        return self._fits > 0

    def next_batch(self) -> None:
        """Records that the trainer begins a batch of training or validation, and has ended the last one."""
        with self._lock:
            action = self._ended("batches", self._batches)
            self._batches += 1
        if action:
            action()

    def step_ended(self, step: int) -> None:
        """Records that the program has reported the end of this step."""
        with self._lock:
            action = None if self._fits else self._ended("ctx", step)
        if action:
            action()

    def _ended(self, counter: str, step: int) -> Callable[[], None] | None:
        """Records a step's end and returns the action for it. Called with _lock held."""
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
        if self._agreed is not agreed:  # replaced by a later step, or cancelled
            return None
        self._agreed = None
        return agreed.action if agreed.confirmed else agreed.given_up

    def position(self) -> dict[str, Any]:
        """Returns the last step that has ended as fields of the answer to the driver; {} if there is none."""
        with self._lock:
            if not self._counter or (self._fits and self._counter != "batches"):
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
        """Registers an action for this step's end, if it is confirmed; returns False if the step has ended.

        given_up is called if the confirmation does not arrive in time; the program then continues.
        """
        with self._lock:
            passed = self._counter == counter and self._step >= step
            self._agreed = None if passed else _Agreed(counter, step, action, given_up)
            self._lock.notify_all()
            return not passed

    def confirm(self, counter: str, step: int) -> None:
        """Confirms that every task acts at this step."""
        with self._lock:
            if self._agreed and (self._agreed.counter, self._agreed.step) == (counter, step):
                self._agreed.confirmed = True
                self._lock.notify_all()

    def forget(self) -> None:
        """Cancels the action. Safe in a signal handler."""
        self._agreed = None
