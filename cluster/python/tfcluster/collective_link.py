"""The connection to the agent for collective calls, and the memory that the tasks of a host share."""

from __future__ import annotations

from typing import Any

from tfcluster.feed_link import Link, Memory, Stopped

_ALIGNED = 64  # bytes: a vector that does not fit the memory is cut at multiples of it


class Group:
    """This task's part in the group of all. One thread at a time uses it."""

    def __init__(self, path: str, key: str, timeout: float) -> None:
        self._link = Link(path)
        self._link.send("open", key=key)
        self._link.send("join", seconds=timeout)
        self._memory: dict[int, Memory] = {}
        self._failed = ""
        while (message := self._receive())["op"] != "group":
            self._memory[int(message["rank"])] = self._link.memory(message, writable=True)
        self.rank = int(message["rank"])
        self.names = [str(name) for name in message["names"]]
        self._slot = int(message["slot"])
        self._room = self._memory[self.rank].slot_size

    def _receive(self) -> dict[str, Any]:
        """The agent's next message; RuntimeError where it says that something has failed."""
        if self._failed:
            raise RuntimeError(f"the group is over: {self._failed}")
        try:
            message = self._link.receive()
        except Stopped as e:
            self._failed = e.reason
            raise RuntimeError(f"a collective call failed: {e.reason}") from None
        if message["op"] == "failed":
            reason = str(message["reason"])
            if not message.get("again"):
                self._failed = reason
            raise RuntimeError(f"a collective call failed: {reason}")
        return message

    def _call(self, data: Any, out: Any, timeout: float, **what: Any) -> None:
        """Makes one call with the bytes of data, and copies its result to out; both are flat arrays of bytes."""
        import numpy as np

        own = np.frombuffer(self._memory[self.rank].slot(self._slot), dtype=np.uint8)
        own[: len(data)] = data
        self._link.send("call", size=len(data), seconds=timeout, **what)
        at = 0
        for rank, slot, offset, size in self._receive().get("parts") or ():
            memory = self._memory[rank].slot(slot)
            out[at : at + size] = np.frombuffer(memory, dtype=np.uint8, count=size, offset=offset)
            at += size
        self._slot = 1 - self._slot

    def all_reduce(self, array: Any, op: str, timeout: float) -> Any:
        """The arrays of all, combined."""
        return self._pieces(array, timeout, kind="all_reduce", type=array.dtype.name, reduce=op)

    def broadcast(self, array: Any, root: int, timeout: float) -> Any:
        """The array of one."""
        return self._pieces(array, timeout, kind="broadcast", root=root)

    def barrier(self, timeout: float) -> None:
        """Nothing, once all are here."""
        import numpy as np

        nothing = np.empty(0, dtype=np.uint8)
        self._call(nothing, nothing, timeout, kind="all_reduce")

    def _pieces(self, array: Any, timeout: float, **what: Any) -> Any:
        """Makes calls for an array in pieces that the memory has room for."""
        import numpy as np

        result = np.empty_like(array)
        data, out = _bytes(array), _bytes(result)
        step = self._room // _ALIGNED * _ALIGNED
        for begin in range(0, max(len(data), 1), step):
            self._call(data[begin : begin + step], out[begin : begin + step], timeout, **what)
        return result

    def all_gather(self, array: Any, timeout: float) -> Any:
        """The arrays of all, one behind the other."""
        import numpy as np

        n = len(self.names)
        result = np.empty((n, *array.shape), dtype=array.dtype)
        data, out = _bytes(array), _bytes(result).reshape(n, -1)
        step = self._room // n // _ALIGNED * _ALIGNED
        for begin in range(0, max(len(data), 1), step):
            piece = data[begin : begin + step]
            gathered = np.empty(n * len(piece), dtype=np.uint8)
            self._call(piece, gathered, timeout, kind="all_gather")
            out[:, begin : begin + step] = gathered.reshape(n, -1)
        return result.reshape((n * array.shape[0], *array.shape[1:])) if array.ndim else result


def _bytes(array: Any) -> Any:
    """An array's memory as bytes, not a copy of it."""
    import numpy as np

    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, dtype=np.uint8)
