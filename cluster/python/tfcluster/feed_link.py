"""The socket and the memory of a feed: see package cluster/agent/feed for the messages.

Spark's executors have no package tfcluster: this module is pickled by value, and imports the standard library,
pyarrow and jsonlines alone.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from tfcluster.jsonlines import Reader, TooLong, encode, write

FAULT = "this is a fault of tfcluster: report it with the output of %tfcluster doctor"
"""The end of an error that only tfcluster itself can cause; the same as in package internal/errtext."""

_HELLO = 10.0  # seconds for a socket that exists to take the connection
_CHUNK = 1 << 16
_LINE = 64 << 20  # bytes of one line from a holder or an agent
_WHY = "it has ended, or it did not accept this program; its log says why"


class Stopped(Exception):
    """The holder takes no more records. reason is "" if every program has all records that it wants."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Link:
    """A connection to a holder. One thread reads; any thread may call send, also a finalizer."""

    _peer = "the process of tfcluster on this executor (its agent)"

    def __init__(self, place: Any) -> None:
        self._received = Reader(_LINE, f"a message of {self._peer} has more than {_LINE} bytes; {FAULT}")
        self._outbox: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._socket = self._connected(place)

    def _connected(self, path: str) -> socket.socket:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connected.settimeout(_HELLO)
            connected.connect(path)
            connected.settimeout(None)
        except OSError:
            connected.close()
            raise
        return connected

    def _more(self) -> None:
        """Reads from the socket once."""
        data, files, flags, _ = socket.recv_fds(self._socket, _CHUNK, 4)
        self._received.feed(data, files)
        if flags & socket.MSG_CTRUNC:
            raise Stopped(
                "descriptors of shared memory were lost: this process has too many open files: raise ulimit -n"
            )
        if not data:
            raise EOFError

    def send(self, op: str, **fields: Any) -> None:
        """Sends a message."""
        self.send_line(encode({"op": op, **fields}))

    def send_line(self, line: bytes) -> None:
        """Sends a line of JSON and what follows it. Where another call is sending, that call sends it."""
        self._outbox.append(line)
        while self._outbox and self._sending.acquire(blocking=False):
            try:
                while self._outbox:
                    write(self._socket, self._outbox.popleft())
            except OSError:
                self._outbox.clear()  # the next read reports that the connection is lost
            finally:
                self._sending.release()

    def receive(self) -> dict[str, Any]:
        """Waits for the next message; Stopped if the holder takes no more or the connection is lost."""
        try:
            while (line := self._received.line()) is None:
                self._wait()
        except TooLong as e:
            raise Stopped(str(e)) from None
        message: dict[str, Any] = json.loads(line)
        if message["op"] == "stop":
            raise Stopped(str(message.get("reason") or ""))
        return message

    def _wait(self) -> None:
        """Waits for more data; raises Stopped if the connection is lost."""
        try:
            self._more()
        except EOFError:
            raise Stopped(f"{self._peer} has closed the connection: {_WHY}") from None
        except OSError as e:
            raise Stopped(f"{self._peer} has closed the connection ({e}): {_WHY}") from e

    def waits(self) -> bool:
        """Reports whether receive would return at once."""
        arrived = select.poll()  # select.select refuses descriptors from 1024 on
        arrived.register(self._socket, select.POLLIN)
        return self._received.has_line() or bool(arrived.poll(0))

    def memory(self, message: dict[str, Any], *, writable: bool) -> Memory:
        """Maps the memory from the descriptor that came with a message."""
        fd = self._received.files.popleft()
        try:
            return Memory(fd, int(message["size"]), int(message["slots"]), writable)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._received.close()


class Memory:
    """A mapping of a segment: slots of equal size."""

    def __init__(self, fd: int, size: int, slots: int, writable: bool) -> None:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.slots = slots
        self.slot_size = size // slots
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, access)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)  # few page faults: every producer maps the memory anew

    def slot(self, number: int, size: int | None = None) -> memoryview:
        """Returns the memory of a slot, from its beginning."""
        begin = number * self.slot_size
        return memoryview(self._map)[begin : begin + (self.slot_size if size is None else size)]

    def close(self) -> None:
        """Unmaps the segment, unless something still refers to it."""
        with contextlib.suppress(BufferError):
            self._map.close()


class Carried(Link):
    """A connection to a holder on another host, which the driver carries: batches follow their lines."""

    def __init__(self, route: Mapping[str, str]) -> None:
        self._peer = f"the driver at {route['address']}, which carries the connection to an executor,"
        self._inbox: deque[dict[str, Any]] = deque()  # messages that came before the results of a fetch
        self._slots: _Buffer | None = None
        super().__init__(route)

    def _connected(self, route: Mapping[str, str]) -> socket.socket:
        host, _, port = route["address"].rpartition(":")
        raw = socket.create_connection((host.strip("[]"), int(port)), timeout=_HELLO)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _LOST.items():
                raw.setsockopt(socket.IPPROTO_TCP, option, value)
            secure = _tls(route).wrap_socket(raw, server_hostname="coordinator")
        except BaseException:
            raw.close()
            raise
        secure.settimeout(None)
        return secure

    def _more(self) -> None:
        data = self._socket.recv(_CHUNK)
        if not data:
            raise EOFError
        self._received.feed(data)

    def send(self, op: str, **fields: Any) -> None:
        """Sends a message; the content of the slot follows "put", before any other thread's message."""
        line = encode({"op": op, **fields})
        if op == "put" and self._slots is not None:
            line = b"".join((line, self._slots.slot(0)[: fields["bytes"]]))
        self.send_line(line)

    def receive(self) -> dict[str, Any]:
        """Waits for the next message; Stopped if the holder takes no more or the connection is lost."""
        return self._inbox.popleft() if self._inbox else super().receive()

    def fetch(self, slot: int) -> memoryview:
        """Asks for the results in a slot and returns them."""
        self.send("fetch", slot=slot)
        while (message := super().receive())["op"] != "bytes":
            self._inbox.append(message)
        while (body := self._received.body(message["bytes"])) is None:
            self._wait()
        return memoryview(body).toreadonly()

    def waits(self) -> bool:
        """Reports whether receive would return at once."""
        import ssl

        self._socket.settimeout(0)
        try:  # a socket of TLS may have received a record without data
            while not self._inbox and not self._received.has_line():
                self._more()
        except ssl.SSLWantReadError:
            return False
        except (OSError, EOFError):
            pass  # receive reports it
        finally:
            self._socket.settimeout(None)
        return True

    def memory(self, message: dict[str, Any], *, writable: bool) -> Memory:
        """Returns memory of this process in place of the holder's. It has one batch at a time."""
        self._slots = _Buffer(self, int(message["size"]), int(message["slots"]))
        return self._slots


class _Buffer(Memory):
    """One slot for a batch that is to be sent."""

    def __init__(self, link: Carried, size: int, slots: int) -> None:
        self.slots = slots
        self.slot_size = size // slots
        self._link = link
        self._memory = bytearray(self.slot_size)

    def slot(self, number: int, size: int | None = None) -> memoryview:
        """Returns the memory to write to; with a size the results in a slot of the holder."""
        return memoryview(self._memory) if size is None else self._link.fetch(number)

    def close(self) -> None:
        """Does nothing: nothing else refers to the memory."""


# A host is given up after 5 s without data and 3 probes without an answer, one each 5 s.
_LOST = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


def _tls(route: Mapping[str, str]) -> Any:
    """Returns the TLS context by which a producer of the feed and the driver prove their identity."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["tfcluster-feed"])
    context.load_verify_locations(cadata=route["authority"])
    with tempfile.TemporaryFile() as file:  # ssl reads only files; this one has no name, and mode 0600
        file.write((route["certificate"] + route["key"]).encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context
