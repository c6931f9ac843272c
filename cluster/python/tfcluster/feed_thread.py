"""The thread of the notebook's process that reads the source of a feed."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from tfcluster import feed_link, shipping
from tfcluster.feed_data import Source


class Feeding:
    """A thread that reads a source once per epoch. make(again) makes it; again: one was read before."""

    def __init__(self, make: Callable[[bool], Source], *, again: bool = False) -> None:
        self._make = make
        self.source = make(again)
        self._lock = threading.Lock()
        self._fed: list[int] = []  # records of each epoch that was delivered
        self._error: BaseException | None = None
        self._ended = True  # no thread reads
        self._stopped = ""  # why a holder took no more
        self.value: Any = None  # of inference, once it is complete
        self._cancelled = False
        self._told: list[tuple[int, Callable[[Any], None]]] = []  # callers that wait for a change

    def start(self, order: Mapping[str, Any], epochs: int) -> None:
        """Begins to deliver."""
        self._ended = False
        threading.Thread(target=self._run, args=(order, epochs), name="tfcluster-feed", daemon=True).start()

    def _run(self, order: Mapping[str, Any], epochs: int) -> None:
        try:
            for epoch in range(epochs):
                if self._cancelled:
                    return
                rows = self.source.read(order, epoch)
                self.value = self.source.finish()
                with self._lock:
                    self._fed.append(rows)
                self._changed()
        except feed_link.Stopped as e:
            with self._lock:
                self._stopped = e.reason
        except BaseException as e:
            with self._lock:
                self._error = None if self._cancelled else e
        finally:
            with self._lock:
                self._ended = True
            self._changed()

    def cancel(self) -> None:
        """Ends the reading, without an error."""
        with self._lock:
            self._cancelled, ended = True, self._ended
        if not ended:
            self.source.cancel()

    def again(self) -> Feeding:
        """Ends the reading; returns a Feeding that reads from the first record again."""
        self.cancel()
        return Feeding(self._make, again=True)

    def ended(self, tell: Callable[[bool], None]) -> None:
        """Calls tell, in any thread, once the reading has ended."""
        self.wait(sys.maxsize, lambda state: tell(True))

    def wait(self, seen: int, tell: Callable[[dict[str, Any]], None]) -> None:
        """Calls tell with the state, in any thread, after more than seen epochs or the end of the reading."""
        with self._lock:
            self._told.append((seen, tell))
        self._changed()

    def _changed(self) -> None:
        with self._lock:
            due = [each for each in self._told if self._ended or len(self._fed) > each[0]]
            self._told = [each for each in self._told if each not in due]
            state = self._state()
        for _, tell in due:
            tell(state)

    def _state(self) -> dict[str, Any]:
        """Returns the records of each delivered epoch, the NaN of the last, and how the reading ended.

        Called with _lock held.
        """
        said: dict[str, Any] = {"fed": list(self._fed), "ended": self._ended, "stopped": self._stopped}
        said["nan"] = dict(self.source.nan)
        if self._error is not None:
            said["ename"] = type(self._error).__name__
            said["error"] = (str(self._error).strip() or type(self._error).__name__) + _place(self._error)
        return said


def _place(error: BaseException) -> str:
    """Returns, in brackets, the innermost line of the notebook or script of an error; "" if there is none."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == "__main__":
            name = frame.f_code.co_filename
            place = f" ({shipping.cell_name(name) or os.path.basename(name)}, line {line}, in {frame.f_code.co_name})"
    return place
