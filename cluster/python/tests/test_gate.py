"""The connection of a command to the engine."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tfcluster import frontend, gate, processes
from tfcluster.errors import ClusterError
from tfcluster.objects import Objects


@pytest.mark.parametrize(
    ("last", "raises"),
    [
        ({"op": "done", "error": {"ename": "ClusterError", "evalue": "after 30s, nothing"}}, "after 30s, nothing"),
        (None, "tfcluster gate beside this notebook has ended"),
    ],
)
def test_go_waits_no_longer(last: dict[str, Any] | None, raises: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes too late does not hide why Go ended the command."""
    ours, go = socket.socketpair()
    monkeypatch.setattr(gate, "connect", lambda: ours)

    def say(message: dict[str, Any]) -> None:
        go.sendall(json.dumps(message).encode() + b"\n")

    def how(_name: str, _args: Any) -> str:
        if last:
            say(last)
        go.close()
        return "late"

    say({"op": "call", "id": 1, "fn": "spark_session"})
    with pytest.raises(ClusterError, match=raises):
        gate.command({"op": "verb"}, how, frontend.Screen())


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, go = socket.socketpair()
    with ours, go:
        go.settimeout(60)
        yield ours, go


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


CALL = {"op": "call", "id": 1, "fn": "program"}


@pytest.mark.parametrize("memory", ["memory", "disk"])
def test_contents(memory: str, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are whole in files that come with the line; no descriptor stays open."""
    ours, go = pair
    if memory == "disk":

        def old(_name: str) -> int:
            raise OSError(errno.ENOSYS, "memfd_create: this glibc is older than 2.27")

        monkeypatch.setattr(processes, "memory_file", old)
    before = descriptors()
    pickle = os.urandom(1 << 20)
    gate.answer(ours, CALL, lambda _fn, _args: gate.Passed({"x": 1}, pickle=pickle, modules=b""))
    assert descriptors() == before
    data, files, _, _ = socket.recv_fds(go, 1 << 16, 4)
    reply = json.loads(data)
    assert reply["value"] == {"x": 1}
    assert reply["contents"] == [{"name": "pickle", "bytes": len(pickle)}, {"name": "modules", "bytes": 0}]
    read = []
    for fd in files:
        with os.fdopen(fd, "rb") as file:
            file.seek(0)
            read.append(file.read())
    assert read == [pickle, b""]


def test_contents_without_room(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """Go gets the error, not a wait without an end; the files that were made are closed."""
    ours, go = pair
    made: list[bytes] = []
    whole = gate._file

    def full(content: bytes) -> Any:
        made.append(content)
        if len(made) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(content)

    monkeypatch.setattr(gate, "_file", full)
    before = descriptors()
    gate.answer(ours, CALL, lambda _fn, _args: gate.Passed({}, pickle=b"p", modules=b"m"))
    assert descriptors() == before
    data, files, _, _ = socket.recv_fds(go, 1 << 16, 4)
    assert not files
    assert json.loads(data)["ename"] == "OSError" and "No space left" in json.loads(data)["error"]


def test_program_beyond_the_limit(pair: tuple[socket.socket, socket.socket]) -> None:
    """Its size is reported, and nothing is passed."""
    ours, go = pair

    def main_fun(args: Any, ctx: Any, data: bytes = b"x" * (3 << 20)) -> None: ...

    gate.answer(
        ours,
        {**CALL, "args": {"name": "main_fun", "max_bytes": 1 << 20, "big": 1 << 30}},
        Objects({"main_fun": main_fun}),
    )
    data, files, _, _ = socket.recv_fds(go, 1 << 16, 4)
    assert not files
    assert "main_fun has 3 MB with the notebook's objects it uses, more than 1: load" in json.loads(data)["error"]


def test_contents_when_go_has_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    """The answer is dropped, and its files are closed."""
    ours, go = pair
    go.shutdown(socket.SHUT_RDWR)
    before = descriptors()
    gate.answer(ours, CALL, lambda _fn, _args: gate.Passed({}, pickle=b"p"))
    assert descriptors() == before
