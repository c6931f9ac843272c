"""How far the program is, for the driver's check for stalls: steps, phases, collective operations.

The training thread marks what it does; a mark costs less than a microsecond. The channel's thread sends the state
once a second, after changes, so the driver knows the last step even of a task that stops in the middle of the next
one. See Activity in cluster/clusterpb/why.proto.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

FIRST_STEP, STEP, BETWEEN_EPOCHS, VALIDATION = "first_step", "step", "between_epochs", "validation"
CHECKPOINT, EXPORT, AFTER_TRAINING = "checkpoint", "export", "after_training"
INTERVAL = 1.0  # seconds between two messages
_COUNTERS = ("batches", "ctx", "operations")  # in the order of their weight


class Activity:
    """What one task's program has done. Any thread may call the methods; they do not block."""

    def __init__(self, begin: Callable[[], None] = lambda: None) -> None:
        """begin is called before the first mark."""
        self._begin: Callable[[], None] | None = begin
        self._began = time.monotonic()
        self._numbers = itertools.count(1)
        self._marks = 0
        self._at = 0.0
        self._phase = ""
        self._steps: dict[str, int] = {}
        self._waited = 0.0  # seconds in collective operations
        self._batches = 0  # of training that have begun and not ended; they may end in another thread
        self._batch_ended = 0.0  # when the last batch of training ended; 0: one is being made
        self._between = 0.0  # seconds between batches of training, from the second one on
        self._sent = 0

    @property
    def begun(self) -> bool:
        """Whether there is any mark."""
        return self._marks > 0

    @property
    def phase(self) -> str:
        """The phase that the program is in; "" before the first one."""
        return self._phase

    def mark(self) -> None:
        """Record progress that is no step, such as a batch of validation."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        self._at = time.monotonic() - self._began
        self._marks = next(self._numbers)

    def enter(self, phase: str) -> None:
        """Record that the program is in another phase."""
        self._phase = phase
        self._batch_ended = 0.0
        self._batches = 0
        self.mark()

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Context of a phase, after which the program is in the one before again; nothing before the first mark.

        A program that only saves or evaluates has no steps, and must not be taken for one that stalls.
        """
        if not self.begun:
            yield
            return
        before = self._phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def batch_begins(self) -> None:
        """Record that a trainer begins a batch of training: the time since the last one was its program's own."""
        if self._batch_ended:
            self._between += time.monotonic() - self._batch_ended
        self._batch_ended = 0.0
        self._batches += 1

    def batch_ended(self, step: int) -> None:
        """Record that a trainer has ended a batch of training, which is a step."""
        self._steps["batches"] = step
        self._phase = STEP
        self.mark()
        self._batches = max(0, self._batches - 1)
        if not self._batches:
            self._batch_ended = time.monotonic()

    def reported(self, step: int, last: bool) -> None:
        """Record that the program has reported the end of a step."""
        self._phase = AFTER_TRAINING if last else STEP
        self._steps["ctx"] = step
        self.mark()

    def operation_begins(self) -> float:
        """Record that a collective operation begins; return the time for operation_ended."""
        if not self._phase:
            self.enter(FIRST_STEP)
        return time.monotonic()

    def operation_ended(self, began: float) -> None:
        """Record that a collective operation has ended."""
        self._waited += time.monotonic() - began
        self._steps["operations"] = self._steps.get("operations", 0) + 1
        if self._phase == FIRST_STEP and len(self._steps) == 1:
            self._phase = STEP
        self.mark()

    def program_ended(self) -> None:
        """Record that the program has returned, if it has made any mark."""
        if self._marks:
            self.enter(AFTER_TRAINING)

    def changes(self) -> dict[str, Any] | None:
        """Return the fields of the message to the driver; None if there is no mark since the last call."""
        marks = self._marks
        if marks == self._sent:
            return None
        self._sent = marks
        counter = next((name for name in _COUNTERS if name in self._steps), "")
        fields: dict[str, Any] = {"phase": self._phase, "marks": marks, "seconds": self._at}
        if counter:
            fields.update(counter=counter, step=self._steps[counter])
        if "operations" in self._steps:
            fields["own_seconds"] = max(0.0, self._at - self._waited)
        elif counter == "batches":
            fields["own_seconds"] = self._between
        return fields


def marked(function: Callable[..., Any], activity: Activity, phase: str) -> Callable[..., Any]:
    """Return a function whose calls are a phase of the program."""

    @functools.wraps(function)
    def in_phase(*args: Any, **kwargs: Any) -> Any:
        with activity.during(phase):
            return function(*args, **kwargs)

    return in_phase
