"""A driver's connection to a Host, and the launches that it asked for."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any


class Launch:
    """Agents that one call asked for. Its job group is of it alone: Spark keeps what it knows of a group."""

    def __init__(self) -> None:
        self.group = ""  # set by name(), before anything runs under it
        self.holds = False  # a stage of it runs for as long as its agents live
        self._given_up = threading.Event()

    def name(self, cluster: str, identity: str) -> str:
        """Names the job group, as no other launch of this session is called."""
        self.group = f"tfcluster-{cluster}-{identity[:12]}-{secrets.token_hex(8)}"
        return self.group

    def give_up(self) -> None:
        """Nobody wants its agents any more."""
        self._given_up.set()

    def given_up(self) -> bool:
        """Whether nobody wants its agents any more."""
        return self._given_up.is_set()


class Driver:
    """One connection. A later driver counts its calls from the beginning, so that nothing of it is another's."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn
        self._lock = threading.Lock()
        self._launches: dict[int, Launch] = {}  # by call; guarded by _lock
        self._gone = False  # the connection has ended; guarded by _lock

    def say(self, message: Mapping[str, Any]) -> None:
        """Tells the driver, if it is still there."""
        data = json.dumps(message, default=str).encode() + b"\n"
        with self._lock:
            try:
                self._conn.sendall(data)
            except OSError:  # half a line may be there, and nothing can follow it
                self.hang_up()

    def hang_up(self) -> None:
        """Ends the connection; whoever reads from it sees its end."""
        with contextlib.suppress(OSError):
            self._conn.shutdown(socket.SHUT_RDWR)

    def launch(self, call: int) -> Launch:
        """The launch that a call asks for, registered until over(). It is given up at once if the driver is gone."""
        with self._lock:
            launch = self._launches.setdefault(call, Launch())
            if self._gone:
                launch.give_up()
            return launch

    def registered(self, call: int) -> Launch | None:
        """The launch of a call, or None if it has ended."""
        with self._lock:
            return self._launches.get(call)

    def over(self, call: int) -> None:
        """Forgets a launch that has ended."""
        with self._lock:
            self._launches.pop(call, None)

    def gone(self) -> list[str]:
        """Gives up what the driver asked for before it died, so that it does not go on beside what the next one asks.

        Gives the job groups that are to be cancelled. Agents that are there stay: a stage that holds their slots ends
        with them.
        """
        with self._lock:
            self._gone = True
            launches = [launch for launch in self._launches.values() if not launch.holds]
        for launch in launches:
            launch.give_up()
        return [launch.group for launch in launches if launch.group]
