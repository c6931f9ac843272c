"""The program's end of a feed: batches of records as they come, and the release of their memory."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfcluster import feed_columns
from tfcluster.feed_link import Link, Memory, Stopped


class EpochOver(NamedTuple):
    """The end of an epoch for this task."""

    epoch: int
    rows: int  # records that this task had
    repeat: int  # records that it repeats, to have as many as the others
    most: int  # the largest rows of all tasks
    least: int  # the smallest


class Piece(NamedTuple):
    """Records of inference. Their producer waits for their results."""

    feed: int
    number: int
    begin: int  # of the batch
    end: int


class _Held:
    """Records of a slot that arrays may refer to. Arrow keeps this object as the owner of their memory."""

    __slots__ = ("__weakref__", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view


class Reader:
    """A reader of one task's records. One thread at a time uses it; any thread may drop arrays."""

    def __init__(self, path: str, key: str) -> None:
        self.address = (path, key)
        self.pieces: deque[Piece] = deque()  # of inference, in the order in which they were read
        self._link = Link(path)
        self._link.send("consume", key=key)
        self._held: dict[int, int] = {}  # by slot, the number of records that something refers to
        self._asked = False
        self._feed = 0
        self._used = 0
        self.total = 0  # records read, of all epochs
        self._epoch = 0
        self._last = 0  # the epoch of the last records
        self.plan: dict[str, Any] = {}
        self.over = False
        self.reason = ""
        self.short = False  # the last next returned no records: those read before must be answered first
        self._memory: Memory = self._link.memory(self._expect("segment"), writable=False)

    @property
    def feed(self) -> int:
        """Returns the number of the feed that is read; 0 before the first feed."""
        return self._feed

    def _expect(self, op: str) -> dict[str, Any]:
        while (message := self._receive())["op"] != op:
            self._take(message)
            if self.over:
                raise RuntimeError(f"the feed failed: {self.reason or 'the task has ended'}")
        return message

    def begin(self) -> dict[str, Any]:
        """Waits for the first feed; returns its plan."""
        while not self._feed and not self.over:
            self._take(self._receive())
        self._fail()
        return self.plan

    def read(self, *, even: bool, batch: int) -> None:
        """Sends how the program reads, before the first next."""
        self._even, self._batch = even, batch
        self._link.send("read", feed=self._feed, even=even, batch=batch)

    def next(self) -> dict[str, Any] | EpochOver | None:
        """Returns the next records, as arrays by column, or the end of an epoch; None at the end of the feed.

        It waits for them. In inference it may return no columns, with short set.
        """
        self.short = False
        if self.over:
            self._fail()
            return None
        if not self._asked:
            self._asked = True
            self._link.send("next")
        while not self.over:
            taken = self._take(self._receive())
            if taken is not None:
                return taken
        self._fail()
        return None

    def _receive(self) -> dict[str, Any]:
        try:
            return self._link.receive()
        except Stopped as e:
            return {"op": "over", "reason": e.reason}

    def _fail(self) -> None:
        if self.reason:
            raise RuntimeError(f"the feed failed: {self.reason}")

    def _take(self, message: Mapping[str, Any]) -> dict[str, Any] | EpochOver | None:
        """Handles a message; returns the records or the end of an epoch that it has for the program."""
        match message["op"]:
            case "feed":
                begun, self._feed = self._feed, int(message["feed"])
                self.plan, self._used, self._epoch, self._asked = dict(message.get("plan") or {}), 0, 0, False
                self._last = 0
                if begun:  # the program continues with another source
                    self.read(even=self._even, batch=self._batch)
                    self._asked = True
                    self._link.send("next")
            case "batch" if message["feed"] == self._feed:
                self._asked = False
                return self._records(message)
            case "flush" if message["feed"] == self._feed:
                self._asked, self.short = False, True
                return {}
            case "epoch_over" if message["feed"] == self._feed:
                self._used, self._epoch = 0, self._epoch + 1
                return EpochOver(*(int(message.get(name) or 0) for name in EpochOver._fields))
            case "over":
                self.over, self.reason = True, str(message.get("reason") or "")
        return None

    def _records(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the records of a message, in the slot; copied if the program holds half of the slots."""
        import pyarrow as pa

        slot, begin, end = int(message["slot"]), int(message["begin"]), int(message["end"])
        count = end - begin
        if number := int(message.get("piece") or 0):
            self.pieces.append(Piece(self._feed, number, begin, end))
        view = self._memory.slot(slot, int(message["bytes"]))
        if len(self._held) >= self._memory.slots // 2 and slot not in self._held:
            buffer = pa.py_buffer(bytes(view))
            batch = pa.ipc.open_stream(buffer).read_next_batch().slice(begin, count)
            self._link.send("free", slot=slot, rows=count)
        else:
            held = _Held(view)
            address = pa.py_buffer(view).address
            buffer = pa.foreign_buffer(address, len(view), held)
            self._held[slot] = self._held.get(slot, 0) + count
            weakref.finalize(held, self._free, slot, count).atexit = False
            del held
            batch = pa.ipc.open_stream(buffer).read_next_batch().slice(begin, count)
        self._used, self._last = self._used + count, self._epoch
        self.total += count
        self._link.send("used", feed=self._feed, epoch=self._epoch, rows=self._used)
        return feed_columns.arrays(batch, self.plan)

    def _free(self, slot: int, count: int) -> None:
        """Returns records to the holder, once nothing refers to them. Any thread may call it."""
        left = self._held.get(slot, 0) - count
        if left > 0:
            self._held[slot] = left
        else:
            self._held.pop(slot, None)
        self._link.send("free", slot=slot, rows=count)

    def leave(self, unread: int = 0) -> None:
        """Ends the reading of this feed. unread is the number of the last records that were not read."""
        if unread or not self.over:
            self.over = True
            self._link.send("leave", feed=self._feed, epoch=self._last, rows=unread)
