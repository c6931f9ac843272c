"""What collective calls take and return, and how vectors are cut; the calls themselves are in e2e/tests."""

from __future__ import annotations

import importlib
import json
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfcluster import collective_link, collective_tensors

FAR = time.monotonic() + 1000


class FakeMemory:
    """Two slots of 256 bytes."""

    slots, slot_size = 2, 256

    def __init__(self) -> None:
        self._slots = [bytearray(256), bytearray(256)]

    def slot(self, number: int, size: int | None = None) -> memoryview:
        return memoryview(self._slots[number])


class Alone(collective_link.Group):
    """A group of ranks that have the same vectors: all are rank 0's."""

    def __init__(self, ranks: int) -> None:
        self.rank, self.names, self._slot, self._room, self._failed = 0, ["worker:0"] * ranks, 1, 256, ""
        self._results = collective_link.Results()
        self._memory: dict[int, FakeMemory] = {}  # type: ignore[assignment]
        self._slots: dict[int, list[Any]] = {}
        self.share(0)
        self._link = self  # type: ignore[assignment]
        self.sizes: list[int] = []
        self.doubles = False
        self.answer: dict[str, Any] = {}

    def share(self, rank: int) -> None:
        """Gives a rank its memory."""
        self._memory[rank] = FakeMemory()
        self._slots[rank] = collective_link._slots(self._memory[rank])  # type: ignore[arg-type]

    def send_line(self, line: bytes) -> None:
        call = json.loads(line)
        assert call["op"] == "call" and call["seconds"] > 0 and line.endswith(b"\n")
        self.called(call["size"], call["kind"])

    def called(self, size: int, kind: str) -> None:
        self.sizes.append(size)
        if self.doubles:  # as an agent does that adds what another rank has
            own = np.frombuffer(self._memory[0].slot(self._slot), dtype="float32")
            own[: size // 4] *= 2
        parts = [[0, self._slot, 0, size]] * (len(self.names) if kind == "all_gather" else 1)
        self.answer = {"op": "done", "parts": parts}

    def receive(self) -> dict[str, Any]:
        return self.answer


def test_large_vectors_go_in_pieces() -> None:
    """Each fits the memory, is in the other slot than the one before, and the result is whole."""
    group = Alone(3)
    x = np.arange(200, dtype="float32").reshape(2, 100)
    assert (group.all_reduce([x], "sum", FAR)[0] == x).all()
    assert group.sizes == [256, 256, 256, 32]
    group.doubles = True
    two = group.all_reduce([x, x[:1, :5]], "mean", FAR)  # as one vector; the group has three ranks
    assert np.allclose(two[0], x * 2 / 3) and np.allclose(two[1], x[:1, :5] * 2 / 3)
    group.doubles = False
    group.sizes.clear()
    gathered = group.all_gather(x, FAR)
    assert gathered.shape == (6, 100) and (gathered == np.concatenate([x] * 3)).all()
    assert group.sizes == [64] * 12 + [32]
    assert group.all_gather(np.int64(7).reshape(()), FAR).tolist() == [7, 7, 7]
    assert group.all_reduce([np.empty((0, 2))], "sum", FAR)[0].shape == (0, 2)
    assert group.broadcast([np.array(True)], 0, FAR)[0].dtype == bool


class Beside(Alone):
    """One of two ranks of a host; the other one has three times its vector."""

    def __init__(self) -> None:
        super().__init__(2)
        self.share(1)
        self.kinds: list[str] = []

    def called(self, size: int, kind: str) -> None:
        self.kinds.append(kind)
        own, other = (np.frombuffer(self._memory[rank].slot(self._slot), dtype="float32") for rank in (0, 1))
        other[:] = own * 3
        if kind == "all_reduce":
            own += other
        parts = [[rank, self._slot, 0, size] for rank in (0, 1)[: 2 if kind == "exchange" else 1]]
        self.answer = {"op": "done", "parts": parts}


def test_two_tasks_of_a_host_add_each_others_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is that of the agents, in pieces and blocks too; small and half-precision vectors are the agents'."""
    monkeypatch.setattr(collective_link, "_EXCHANGED_ABOVE", 100)
    monkeypatch.setattr(collective_link, "_BLOCK", 7)
    x, y = np.arange(90, dtype="float32"), np.arange(60, dtype="float32").reshape(3, 20)
    for op, factor in (("sum", 4), ("mean", 2), ("max", 4)):  # the stand-in for agents knows sums only
        group = Beside()
        results = group.all_reduce([x, y], op, FAR)
        assert (results[0] == x * factor).all() and (results[1] == y * factor).all()
        assert group.kinds == ["all_reduce" if op == "max" else "exchange"] * 3
    group = Beside()
    assert (group.all_reduce([x[:20]], "sum", FAR)[0] == x[:20] * 4).all()
    assert group.kinds == ["all_reduce"]
    group = Beside()
    group.all_reduce([np.zeros(128, "float16")], "sum", FAR)
    assert group.kinds == ["all_reduce"]


def test_a_failure_ends_the_group(tmp_path: Path) -> None:
    """A call that could not be made can be made otherwise; after another error nothing is sent."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        link = collective_link.Link(str(tmp_path / "s"))
        agent, _ = listener.accept()
    group = Alone(1)
    group._link = link
    for reason, again in (("no such type", True), ("worker:1 has left", False)):
        agent.sendall(json.dumps({"op": "failed", "reason": reason, "again": again}).encode() + b"\n")
        with pytest.raises(RuntimeError, match=f"a collective call failed: {reason}"):
            group._receive()
    with pytest.raises(RuntimeError, match="a collective call failed: an earlier one had failed: worker:1 has left"):
        group._receive()
    link.close()
    agent.close()


def test_an_interrupted_call_ends_the_group(tmp_path: Path) -> None:
    """Its answer would be taken for that of the next call, and the sums be wrong."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        link = collective_link.Link(str(tmp_path / "s"))
        agent, _ = listener.accept()
    group = Alone(1)
    group._link = link

    def interrupted() -> dict[str, Any]:
        raise KeyboardInterrupt

    link.receive = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        group.all_reduce([np.ones(4)], "sum", FAR)
    with pytest.raises(RuntimeError, match="an earlier one had failed: an exception in this task interrupted it"):
        group.all_reduce([np.ones(4)], "sum", FAR)
    agent.settimeout(10)
    while agent.recv(1 << 16):
        pass  # the agent hears that the program has gone
    agent.close()


def test_numpy_is_taken() -> None:
    """Arrays in C's order, of any value; numbers come back as numbers."""
    transposed = np.arange(6).reshape(2, 3).T
    array, back = collective_tensors.taken(transposed)
    assert array.flags["C_CONTIGUOUS"] and (back(array) == transposed).all()
    array, back = collective_tensors.taken(np.float32(2))
    assert isinstance(back(array), np.float32)
    assert collective_tensors.taken([1.0, 2.0])[0].dtype == np.float64
    swapped = np.arange(3, dtype=np.dtype("float32").newbyteorder())  # of a file: the agents add native numbers
    array, _ = collective_tensors.taken(swapped)
    assert array.dtype.isnative and array.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["tensorflow", "torch", "jax.numpy"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_tensors_are_taken(name: str, dtype: str) -> None:
    """A tensor becomes an array of the same values and type, and a result a tensor."""
    pytest.importorskip(name, reason=f"missing: {name}")
    library = importlib.import_module(name)
    kind = getattr(library, dtype)
    make = {"tensorflow": "constant", "torch": "tensor", "jax.numpy": "array"}[name]
    x = getattr(library, make)([[1, 2], [3, 4]], dtype=kind)
    array, back = collective_tensors.taken(x)
    assert array.dtype.name == dtype and array.astype(float).tolist() == [[1, 2], [3, 4]]
    result = back(array.copy())
    assert type(result) is type(x) and result.dtype == x.dtype
    assert collective_tensors.taken(result)[0].astype(float).tolist() == [[1, 2], [3, 4]]
    scalar = getattr(library, make)(3, dtype=kind)
    array, back = collective_tensors.taken(scalar)
    assert array.shape == () and tuple(back(array.copy()).shape) == ()
