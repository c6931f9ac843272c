"""The socket and the memory of a feed: see package cluster/feed/intake for the messages.

Spark's executors have no package tfcluster: this module is pickled by value, and imports the standard library and
pyarrow alone.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import threading
from collections import deque
from typing import Any

_HELLO = 10.0  # seconds until a socket that exists takes the connection
_CHUNK = 1 << 16


class Stopped(Exception):
    """The holder takes no more records; reason is "" where every program has what it wants."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Link:
    """A connection to a holder. One thread reads; send may be called from any, also from a finalizer."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._received = bytearray()
        self._files: deque[int] = deque()
        self._outbox: deque[bytes] = deque()
        self._sending = threading.Lock()
        try:
            self._socket.settimeout(_HELLO)
            self._socket.connect(path)
            self._socket.settimeout(None)
        except OSError:
            self._socket.close()
            raise

    def send(self, op: str, **fields: Any) -> None:
        """Sends a message. A finalizer may run inside of another call of send: then that call sends it."""
        self._outbox.append(json.dumps({"op": op, **fields}).encode() + b"\n")
        while self._outbox and self._sending.acquire(blocking=False):
            try:
                while self._outbox:
                    self._socket.sendall(self._outbox.popleft())
            except OSError:
                self._outbox.clear()  # the next read says that the holder is gone
            finally:
                self._sending.release()

    def receive(self) -> dict[str, Any]:
        """Waits for the next message; Stopped when the holder is gone."""
        while (at := self._received.find(b"\n")) < 0:
            try:
                data, files, _, _ = socket.recv_fds(self._socket, _CHUNK, 4, socket.MSG_CMSG_CLOEXEC)
            except OSError as e:
                raise Stopped(f"the executor's agent has ended ({e})") from e
            self._files.extend(files)
            if not data:
                raise Stopped("the executor's agent has ended")
            self._received += data
        line = bytes(self._received[:at])
        del self._received[: at + 1]
        message: dict[str, Any] = json.loads(line)
        if message["op"] == "stop":
            raise Stopped(str(message.get("reason") or ""))
        return message

    def waits(self) -> bool:
        """Whether receive would return at once."""
        return b"\n" in self._received or bool(select.select([self._socket], [], [], 0)[0])

    def memory(self, message: dict[str, Any], *, writable: bool) -> Memory:
        """Maps the memory whose descriptor came with a message."""
        fd = self._files.popleft()
        try:
            return Memory(fd, int(message["size"]), int(message["slots"]), writable)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        while self._files:
            os.close(self._files.popleft())


class Memory:
    """A mapping of a segment: slots of equal size."""

    def __init__(self, fd: int, size: int, slots: int, writable: bool) -> None:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.slots = slots
        self.slot_size = size // slots
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, access)
        with contextlib.suppress(OSError):  # a kernel without them
            self._map.madvise(mmap.MADV_HUGEPAGE)  # few page faults: every producer maps the memory anew

    def slot(self, number: int, size: int | None = None) -> memoryview:
        """The memory of a slot, from its beginning."""
        begin = number * self.slot_size
        return memoryview(self._map)[begin : begin + (self.slot_size if size is None else size)]

    def close(self) -> None:
        """Unmaps the segment, unless something refers to it yet."""
        with contextlib.suppress(BufferError):
            self._map.close()
