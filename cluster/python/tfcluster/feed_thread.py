"""The thread of the notebook's process that reads the source of a feed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tfcluster import feed_link
from tfcluster.feed_notebook import Source


class Feeding:
    """A thread that reads a source once per epoch."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._fed: list[int] = []  # records of each epoch that was delivered
        self._error: BaseException | None = None
        self._ended = False
        self._stopped = ""  # why a holder took no more
        self.value: Any = None  # of inference, once it is complete
        self._cancelled = False
        self._tell: tuple[int, Callable[[Any], None]] | None = None  # who waits for the state to change

    def start(self, order: Mapping[str, Any], epochs: int) -> None:
        """Begins to deliver."""
        threading.Thread(target=self._run, args=(order, epochs), name="tfcluster-feed", daemon=True).start()

    def _run(self, order: Mapping[str, Any], epochs: int) -> None:
        try:
            for epoch in range(epochs):
                rows = self._source.read(order, epoch)
                self.value = self._source.finish()
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
        """Ends the reading; it is no error."""
        with self._lock:
            self._cancelled, ended = True, self._ended
        if not ended:
            self._source.cancel()

    def wait(self, seen: int, tell: Callable[[dict[str, Any]], None]) -> None:
        """Calls tell with the state, in any thread, once more than seen epochs are delivered or reading has ended."""
        with self._lock:
            self._tell = (seen, tell)
        self._changed()

    def _changed(self) -> None:
        with self._lock:
            if self._tell is None or (len(self._fed) <= self._tell[0] and not self._ended):
                return
            tell, self._tell = self._tell[1], None
            state = self._state()
        tell(state)

    def _state(self) -> dict[str, Any]:
        """The records of each epoch delivered, whether the thread has ended, and with what error. With _lock held."""
        said: dict[str, Any] = {"fed": list(self._fed), "ended": self._ended, "stopped": self._stopped}
        if self._error is not None:
            said["ename"] = type(self._error).__name__
            said["error"] = str(self._error).strip() or type(self._error).__name__
        return said
