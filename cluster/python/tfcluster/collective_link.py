"""The connection to the agent for collective calls, and the memory that the tasks of a host share."""

from __future__ import annotations

import functools
import json
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tfcluster.feed_link import Link, Memory, Stopped

_EXCHANGED = ("float32", "float64", "int32", "int64")  # types that NumPy adds with the agents' bits
_ALIGNED = 64  # bytes: longer vectors are cut at multiples of it; no framework needs a larger alignment


_AGAIN = "; see the logs of the tasks that are named, then start the run again"


def _explained(reason: str) -> str:
    """Returns a reason with its remedy, unless the reason has one of its own."""
    return reason if "fault of tfcluster" in reason or "the cluster's driver" in reason else reason + _AGAIN


class GroupLink(Link):
    """A connection of a group. No descriptors arrive once the group is known."""

    joined = False

    def _more(self) -> None:
        if not self.joined:
            super()._more()
        elif data := self._socket.recv(4096):  # half the time of a read that takes descriptors
            self._received.feed(data)
        else:
            raise EOFError


class Group:
    """This task's part in the group of all tasks. One thread at a time uses it."""

    def __init__(self, path: str, key: str, timeout: float) -> None:
        self._link = GroupLink(path)
        self._link.send("open", key=key)
        self._link.send("join", seconds=timeout)
        self._memory: dict[int, Memory] = {}
        self._failed = ""
        maps = []
        while (message := self._receive())["op"] != "group":
            maps.append(message)
        self.rank = int(message["rank"])
        for m in maps:
            self._memory[int(m["rank"])] = self._link.memory(m, writable=m["rank"] == self.rank)
        self._link.joined = True
        self.names = [str(name) for name in message["names"]]
        self._slot = int(message["slot"])
        self._slots = {rank: _slots(memory) for rank, memory in self._memory.items()}
        self._room = self._memory[self.rank].slot_size // _ALIGNED * _ALIGNED
        self._results = Results()

    def _answer(self) -> dict[str, Any]:
        """Returns the agent's next message; RuntimeError if the agent has exited, or the group is over."""
        if self._failed:
            raise RuntimeError(f"a collective call failed: an earlier one had failed: {_explained(self._failed)}")
        try:
            return self._link.receive()
        except Stopped as e:
            self._failed = e.reason
            raise RuntimeError(f"a collective call failed: {_explained(e.reason)}") from None

    def _receive(self) -> dict[str, Any]:
        """Returns the agent's next message; RuntimeError if it reports a failure."""
        return self._checked(self._answer())

    def _checked(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns a message; RuntimeError if it reports a failure."""
        if message["op"] == "failed":
            reason = str(message["reason"])
            if not message.get("again"):
                self._failed = reason
            raise RuntimeError("a collective call failed: " + (reason if message.get("again") else _explained(reason)))
        return message

    def _call(self, request: bytes, data: Iterable[Any], until: float, size: int, dtype: Any) -> list[Any]:
        """Makes one call with size bytes; returns memory with the result, which the next call may overwrite.

        A signal may raise an error in the middle. The group is then over, because the answer would be taken
        for the answer to the next call.
        """
        _copy([self._elements(self.rank, self._slot, 0, size, dtype)], iter(data))
        answered = False
        try:
            self._link.send_line(b"%b%.3f}\n" % (request, max(until - time.monotonic(), 0.001)))
            answer = self._answer()
            answered = True
        finally:
            if not answered and not self._failed:
                self._failed = "an exception in this task interrupted it"
                self._link.close()  # the other tasks get an error
        parts = self._checked(answer).get("parts") or ()
        self._slot = 1 - self._slot  # not if the call was refused
        return [self._elements(*part, dtype) for part in parts]

    def _elements(self, rank: int, slot: int, offset: int, size: int, dtype: Any) -> Any:
        """Returns a part of a rank's memory as an array."""
        return self._slots[rank][slot][offset : offset + size].view(dtype)

    def all_reduce(self, arrays: Sequence[Any], op: str, until: float) -> list[Any]:
        """Returns the arrays of all tasks, combined. All have one type; they travel as one vector."""
        divisor = len(self.names) if op == "mean" else 1
        kind = "exchange" if op in ("sum", "mean") and self._exchanges(arrays) else "all_reduce"
        return self._pieces(arrays, divisor, until, kind, reduce=op)

    def _exchanges(self, arrays: Sequence[Any]) -> bool:
        """Reports whether two tasks on one host, the only ones, add up these large vectors themselves."""
        both = len(self.names) == len(self._memory) == 2
        return both and sum(a.nbytes for a in arrays) > _EXCHANGED_ABOVE and arrays[0].dtype.name in _EXCHANGED

    def broadcast(self, arrays: Sequence[Any], root: int, until: float) -> list[Any]:
        """Returns the arrays of task root."""
        return self._pieces(arrays, 1, until, "broadcast", root=root)

    def barrier(self, until: float) -> None:
        """Waits until all tasks have called it."""
        import numpy as np

        self._call(_request("all_reduce", 0), (), until, 0, np.dtype(np.uint8))

    def _pieces(
        self, arrays: Sequence[Any], divisor: int, until: float, kind: str, reduce: str = "", root: int = 0
    ) -> list[Any]:
        """Makes calls for arrays of one type, in pieces that fit the memory; returns the results."""
        dtype = arrays[0].dtype
        results = self._results.like(arrays) if sum(a.nbytes for a in arrays) > _SMALL else _new(arrays)
        flat, out = [a.reshape(-1) for a in arrays], [r.reshape(-1) for r in results]
        total, form = sum(a.size for a in flat), _form(arrays)
        step = self._room // dtype.itemsize
        for begin in range(0, max(total, 1), step):
            end = min(begin + step, total)
            size = (end - begin) * dtype.itemsize
            request = _request(kind, size, form, dtype, reduce, root)
            parts = self._call(request, _between(flat, begin, end), until, size, dtype)
            if kind == "exchange":
                _add(_between(out, begin, end), *parts, divisor)
            else:
                _copy(_between(out, begin, end), iter(parts), divisor)
        return results

    def all_gather(self, array: Any, until: float) -> Any:
        """Returns the arrays of all tasks, one after the other."""
        import numpy as np

        n, form = len(self.names), _form([array])
        result = np.empty((n, *array.shape), dtype=array.dtype)
        flat, out = array.reshape(-1), result.reshape(n, -1)
        step = self._room // n // _ALIGNED * _ALIGNED // array.dtype.itemsize
        for begin in range(0, max(flat.size, 1), step):
            piece = flat[begin : begin + step]
            request = _request("all_gather", piece.nbytes, form)
            parts = self._call(request, [piece], until, piece.nbytes, array.dtype)
            _copy((row[begin : begin + step] for row in out), iter(parts))
        return result.reshape((n * array.shape[0], *array.shape[1:])) if array.ndim else result


def _slots(memory: Memory) -> list[Any]:
    """Returns the slots of a memory as bytes."""
    import numpy as np

    return [np.frombuffer(memory.slot(i), np.uint8) for i in range(memory.slots)]


@functools.lru_cache(256)
def _request(kind: str, size: int, form: int = 0, dtype: Any = None, reduce: str = "", root: int = 0) -> bytes:
    """Returns the line of a call up to the seconds that it may take.

    A program makes the same calls over and over. Before each of them other code has used the processor's
    caches, so computing the line again would cost three times its normal time.
    """
    call = {"op": "call", "kind": kind, "size": size, "form": form, "reduce": reduce, "root": root}
    if dtype is not None:
        call["type"] = dtype.name
    return json.dumps(call).encode()[:-1] + b', "seconds": '


def _form(arrays: Sequence[Any]) -> int:
    """Returns a checksum of the types and shapes of arrays: other tasks must have the same."""
    return _checksum(tuple((a.dtype, a.shape) for a in arrays))


@functools.lru_cache(256)
def _checksum(forms: tuple[tuple[Any, tuple[int, ...]], ...]) -> int:
    return zlib.crc32(repr([(dtype.name, shape) for dtype, shape in forms]).encode())


def _between(arrays: Sequence[Any], begin: int, end: int) -> Iterator[Any]:
    """Yields elements [begin, end) of flat arrays, which are counted as one vector."""
    for a in arrays:
        if begin < a.size and end > 0:
            yield a[max(begin, 0) : end]
        begin, end = begin - a.size, end - a.size


def _copy(to: Iterable[Any], of: Iterator[Any], divisor: int = 1) -> None:
    """Copies flat arrays into as many elements of others, divided by a number."""
    import numpy as np

    source = next(of, None)
    for target in to:
        while target.size and source is not None:
            n = min(target.size, source.size)
            if divisor == 1:
                target[:n] = source[:n]
            else:
                np.divide(source[:n], divisor, out=target[:n])
            target, source = target[n:], source[n:] if n < source.size else next(of, None)


def _add(to: Iterable[Any], a: Any, b: Any, divisor: int) -> None:
    """Sets flat arrays, counted as one vector, to the sum of two vectors, divided by a number."""
    import numpy as np

    begin = 0
    for target in to:
        for at in range(0, target.size, _BLOCK):
            block = target[at : at + _BLOCK]
            np.add(a[begin : begin + block.size], b[begin : begin + block.size], out=block)
            if divisor != 1:
                np.divide(block, divisor, out=block)  # while the processor's cache has it
            begin += block.size


class Results:
    """Memory for results, which is used again once nothing refers to it: new memory costs page faults.

    The arrays of a result are aligned, so that TensorFlow takes them without a copy.
    """

    _kept = 2  # a program has the result of a step while the next one is made

    def __init__(self) -> None:
        self._blocks: list[Any] = []

    def like(self, arrays: Sequence[Any]) -> list[Any]:
        """Returns arrays of the shapes and types of others, with arbitrary values."""
        size = sum(_padded(a.nbytes) for a in arrays) + _ALIGNED
        block = self._free(size)
        at = -block.ctypes.data % _ALIGNED
        results = []
        for a in arrays:
            results.append(block[at : at + a.nbytes].view(a.dtype).reshape(a.shape))
            at += _padded(a.nbytes)
        return results

    def _free(self, size: int) -> Any:
        """Returns a block that nothing else refers to."""
        import numpy as np

        for i in range(len(self._blocks)):
            if self._blocks[i].size == size and sys.getrefcount(self._blocks[i]) == _ONLY_HERE:
                return self._blocks[i]
        block = np.empty(size, dtype=np.uint8)
        self._blocks = [*self._blocks, block][-self._kept :]
        return block


_BLOCK = 1 << 16  # elements
_EXCHANGED_ABOVE = 16 << 10  # bytes: agents add smaller vectors without a second wait for each other
_SMALL = 1 << 20  # bytes of results that are not kept: Python's allocator is as fast


def _new(arrays: Sequence[Any]) -> list[Any]:
    """Returns arrays of the shapes and types of others, with arbitrary values."""
    import numpy as np

    return [np.empty(a.shape, a.dtype) for a in arrays]


_ONLY_HERE = 2  # what sys.getrefcount returns for an object that only one list refers to


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
