"""The progress of a task's program, for the driver's check for stalls: steps, phases, collective operations.

The training thread marks its progress; a mark costs less than a microsecond. Once a second the channel's
thread sends the state if it has changed. So the driver knows the last step even of a task that stops in the
middle of the next step. See Activity in cluster/clusterpb/why.proto.
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
_COUNTERS = ("batches", "ctx", "operations")  # the first of these that has a step is sent


class Activity:
    """The progress of one task's program. Any thread may call the methods; they do not block."""

    def __init__(self, begin: Callable[[], None] = lambda: None) -> None:
        """Takes begin, which is called before the first mark."""
        self._begin: Callable[[], None] | None = begin
        self._began = time.monotonic()
        self._numbers = itertools.count(1)
        self._marks = 0
        self._at = 0.0
        self._phase = ""
        self._steps: dict[str, int] = {}
        self._waited = 0.0  # seconds in collective operations
        self._batches = 0  # of training that have begun and not ended; they may end in another thread
        self._batch_ended = 0.0  # end of the last batch of training; 0: a batch runs, or none has ended
        self._between = 0.0  # seconds between batches of training, from the second one on
        self._sent = 0

    @property
    def begun(self) -> bool:
        """Reports whether there is any mark."""
        return self._marks > 0

    @property
    def phase(self) -> str:
        """Returns the program's phase; "" before the first phase."""
        return self._phase

    def mark(self) -> None:
        """Records progress that is no step, such as a batch of validation."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        self._at = time.monotonic() - self._began
        self._marks = next(self._numbers)

    def enter(self, phase: str) -> None:
        """Records that the program enters a phase."""
        self._phase = phase
        self._batch_ended = 0.0
        self._batches = 0
        self.mark()

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Enters a phase for the time of the context, then restores the earlier phase.

        Before the first mark it does nothing: a program that only saves or evaluates has no steps, and must
        not be taken for a program that stalls.
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
        """Records that a trainer begins a batch of training; after the last batch the program's code ran."""
        if self._batch_ended:
            self._between += time.monotonic() - self._batch_ended
        self._batch_ended = 0.0
        self._batches += 1

    def batch_ended(self, step: int) -> None:
        """Records that a trainer has ended a batch of training, which is a step."""
        self._steps["batches"] = step
        self._phase = STEP
        self.mark()
        self._batches = max(0, self._batches - 1)
        if not self._batches:
            self._batch_ended = time.monotonic()

    def reported(self, step: int, last: bool) -> None:
        """Records that the program has reported the end of a step."""
        self._phase = AFTER_TRAINING if last else STEP
        self._steps["ctx"] = step
        self.mark()

    def operation_begins(self) -> float:
        """Records that a collective operation begins; returns the time for operation_ended."""
        if not self._phase:
            self.enter(FIRST_STEP)
        return time.monotonic()

    def operation_ended(self, began: float) -> None:
        """Records that a collective operation has ended."""
        self._waited += time.monotonic() - began
        self._steps["operations"] = self._steps.get("operations", 0) + 1
        if self._phase == FIRST_STEP and len(self._steps) == 1:
            self._phase = STEP
        self.mark()

    def program_ended(self) -> None:
        """Records that the program has returned, if it has made any mark."""
        if self._marks:
            self.enter(AFTER_TRAINING)

    def changes(self) -> dict[str, Any] | None:
        """Returns the fields of the message to the driver; None if there is no mark since the last call."""
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
    """Returns a function that makes each call of the given function a phase of the program."""

    @functools.wraps(function)
    def in_phase(*args: Any, **kwargs: Any) -> Any:
        with activity.during(phase):
            return function(*args, **kwargs)

    return in_phase
