"""The connection of a command to the engine."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tfcluster import frontend, gate
from tfcluster.errors import ClusterError


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
