"""Messages that are one line of JSON each; package internal/jsonlines is the same in Go.

Bytes may follow a line, and descriptors may come with it. Spark's executors have no package tfcluster: this module
is pickled by value, and imports the standard library alone.
"""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class TooLong(ValueError):
    """A line that is longer than its reader allows."""


class Reader:
    """Received bytes, taken apart into lines, and the descriptors that came with them.

    Descriptors come no later than the line with which they were passed, in the order of lines.
    """

    def __init__(self, limit: int, refusal: str) -> None:
        self.files: deque[int] = deque()
        self._held = bytearray()
        self._searched = 0  # bytes that have no end of a line
        self._limit = limit  # of a line with its end, in bytes
        self._refusal = refusal  # the text of TooLong

    def feed(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Takes what was received."""
        self._held += data
        for file in files:  # socket.recv_fds would ignore the flag MSG_CMSG_CLOEXEC
            os.set_inheritable(file, False)
        self.files.extend(files)

    def line(self) -> bytearray | None:
        """Returns the next line without its end; None if it is not whole. TooLong as soon as it exceeds the limit."""
        end = self._held.find(b"\n", self._searched)
        if (end if end >= 0 else len(self._held)) >= self._limit:
            raise TooLong(self._refusal)
        if end < 0:
            self._searched = len(self._held)
            return None
        line = self._held[:end]
        del self._held[: end + 1]
        self._searched = 0
        return line

    def lines(self) -> Iterator[bytearray]:
        """Yields each whole line without its end."""
        while (line := self.line()) is not None:
            yield line

    def has_line(self) -> bool:
        """Reports whether a whole line has come."""
        return self._held.find(b"\n", self._searched) >= 0

    def body(self, size: int) -> bytearray | None:
        """Returns the next bytes, which follow a line; None if fewer have come."""
        if len(self._held) < size:
            return None
        body = self._held[:size]
        del self._held[:size]
        self._searched = 0
        return body

    def close(self) -> None:
        """Closes the descriptors that nobody took."""
        while self.files:
            os.close(self.files.popleft())


def encode(message: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> bytes:
    """Returns a message as a line; default as in json.dumps."""
    return json.dumps(message, default=default).encode() + b"\n"


def write(conn: socket.socket, line: bytes, files: Sequence[int] = ()) -> None:
    """Writes a whole line, and what follows it; passes descriptors with its first byte."""
    sent = socket.send_fds(conn, [line], files) if files else 0
    conn.sendall(memoryview(line)[sent:] if sent else line)
