"""The program's end of a feed's memory: a slot is given back when nothing refers to it any more."""

from __future__ import annotations

import concurrent.futures
import gc
import json
import os
import select
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tfcluster.feed import DataFeed
from tfcluster.feed_reader import Reader
from tfcluster.feed_source import _put

SLOTS, SIZE, ROWS = 8, 1 << 16, 100


class Holder:
    """The agent's end: it hands out slot after slot, each with ROWS numbers, and hears what comes back."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(Reader, path, "key")
            self._conn, _ = listener.accept()
            self._conn.settimeout(10)
            self._lines = self._conn.makefile("r")
            self._fd = os.memfd_create("feed")
            os.truncate(self._fd, SLOTS * SIZE)
            line = json.dumps({"op": "segment", "size": SLOTS * SIZE, "slots": SLOTS}).encode() + b"\n"
            socket.send_fds(self._conn, [line], [self._fd])
            self.reader = connecting.result(10)
        assert self.hear()["op"] == "consume"
        self._say(op="feed", feed=1, plan={})
        self.reader.begin()
        self.reader.read(even=False, batch=ROWS)
        assert self.hear()["op"] == "read"
        self._free: list[tuple[int, int]] = []  # heard, and not asked for yet

    def _say(self, **message: Any) -> None:
        self._conn.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next message of the program."""
        return json.loads(self._lines.readline())

    def gives(self, slot: int, value: int) -> Any:
        """The program's array of a slot in which each number is value."""
        buffer = memoryview(bytearray(SIZE))
        size = _put(pa.record_batch({"x": np.full(ROWS, value)}), buffer)
        os.pwrite(self._fd, buffer, slot * SIZE)
        self._say(op="batch", feed=1, slot=slot, bytes=size, begin=0, end=ROWS)
        found = self.reader.next()
        assert isinstance(found, dict)
        while (message := self.hear())["op"] != "used":
            if message["op"] == "free":
                self._free.append((message["slot"], message["rows"]))
        return found["x"]

    def freed(self) -> tuple[int, int]:
        """The slot that the program gives back next, and how many records of it."""
        gc.collect()
        if not self._free:
            message = self.hear()
            assert message["op"] == "free"
            self._free.append((message["slot"], message["rows"]))
        return self._free.pop(0)

    def quiet(self) -> bool:
        """Whether the program has given nothing back: finalizers send, in the thread that drops an object."""
        gc.collect()
        return not self._free and not select.select([self._conn], [], [], 0)[0]

    def close(self) -> None:
        """Ends the connection."""
        self._conn.close()
        os.close(self._fd)


@pytest.fixture
def holder() -> Iterator[Holder]:
    """A holder and the reader that is connected to it."""
    with tempfile.TemporaryDirectory(prefix="tf") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen()
        made = Holder(listener, f"{folder}/s")
        yield made
        made.close()


@pytest.mark.parametrize(
    "refers",
    [
        lambda array: array,
        lambda array: array[7:9],
        lambda array: array.reshape(10, 10).T,
        memoryview,
        lambda array: np.frombuffer(pa.py_buffer(array), dtype="int64"),
        lambda array: pa.array(array[1:]),
    ],
)
def test_a_slot_is_kept_while_something_refers_to_it(holder: Holder, refers: Any) -> None:
    """An array, a part of one, a buffer of Arrow: the memory is not given back before the last of them is gone."""
    array = holder.gives(3, 7)
    assert not array.flags.writeable
    kept = refers(array)
    del array
    assert holder.quiet()
    other = holder.gives(4, 8)
    assert set(np.asarray(kept).ravel().tolist()) == {7}
    del kept
    assert holder.freed() == (3, ROWS)
    assert holder.quiet()
    del other
    assert holder.freed() == (4, ROWS)


def test_tensors(holder: Holder) -> None:
    """TensorFlow copies an array, or keeps it."""
    tensorflow = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
    tensor = tensorflow.convert_to_tensor(holder.gives(3, 7))
    slot = 4 if holder.quiet() else holder.freed()[0]
    holder.gives(slot, 8)
    assert set(tensor.numpy().tolist()) == {7}


def test_what_was_not_read(holder: Holder) -> None:
    """A program that leaves says how many of the records that it was handed it has not read."""
    feed = DataFeed(lambda: holder.reader)
    feed._use("next_batch and next_numpy")
    assert holder.hear()["op"] == "read"
    feed._rest.append({"x": holder.gives(0, 1)})
    assert len(feed.next_batch(30)) == 30
    feed.end()
    said = holder.hear()
    said = said if said["op"] == "leave" else holder.hear()  # the records may be given back before
    assert (said["op"], said["epoch"], said["rows"]) == ("leave", 0, 70)


def test_copies_where_the_program_keeps_half(holder: Holder) -> None:
    """A program that keeps arrays keeps half of the slots; what comes then is copied, and its slot is free at once."""
    kept = [holder.gives(slot, slot) for slot in range(SLOTS // 2)]
    assert holder.quiet()
    for value in (10, 11):
        kept.append(holder.gives(SLOTS // 2, value))
        assert holder.freed() == (SLOTS // 2, ROWS)
    assert [int(array[-1]) for array in kept] == [0, 1, 2, 3, 10, 11]
    del kept[0]
    gc.collect()
    assert holder.freed() == (0, ROWS)
    kept.append(holder.gives(0, 12))  # there is room for one again
    assert holder.quiet()
    assert [int(array[0]) for array in kept] == [1, 2, 3, 10, 11, 12]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"op": "over", "reason": "the connection to the driver is lost"}, "the connection to the driver is lost"),
        ({"op": "over", "reason": ""}, "the task has ended"),
        (None, "closed the connection"),
    ],
)
def test_a_feed_that_ends_before_it_begins_says_why(tmp_path: Path, answer: dict[str, str] | None, why: str) -> None:
    path = str(tmp_path / "feed.sock")
    with socket.socket(socket.AF_UNIX) as listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        listener.bind(path)
        listener.listen()
        connecting = pool.submit(Reader, path, "key")
        conn, _ = listener.accept()
        with conn:
            conn.recv(1000)
            if answer:
                conn.sendall(json.dumps(answer).encode() + b"\n")
        with pytest.raises(RuntimeError, match=f"the feed failed: .*{why}"):
            connecting.result(10)
