"""Puts the package on the path of the tests and of what they start."""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PACKAGE))
os.environ["PYTHONPATH"] = str(PACKAGE)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def pytest_configure(config: pytest.Config) -> None:
    """End the session at SIGTERM as at Ctrl-C: what tests have started is ended by their finalizers."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


class Agent:
    """The other end of a control socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(60)
        self._lines = sock.makefile("rb")

    def read(self) -> dict:
        return json.loads(self._lines.readline())

    def write(self, **message) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


@pytest.fixture
def agent_and_channel() -> Iterator[tuple]:
    from tfcluster.channel import Channel

    ours, theirs = socket.socketpair()
    agent = Agent(ours)
    yield agent, Channel(theirs)
    agent.close()
    theirs.close()
