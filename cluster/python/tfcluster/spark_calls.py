"""A driver's connection to a Host, and its launches."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any

from tfcluster import jsonlines


class Launch:
    """The agents of one launch call. It has a job group of its own, because Spark keeps a group's state."""

    def __init__(self) -> None:
        self.group = ""  # set by name() before its first job
        self.holds = False  # its stage runs while its agents live
        self.waits = ""  # why it waits; "": no reason of its own
        self.orphaned = False  # its driver is lost: it starts no further stage
        self._given_up = threading.Event()

    def name(self, cluster: str, identity: str) -> str:
        """Sets the job group's name, unique in this session, and returns it."""
        self.group = f"tfcluster-{cluster}-{identity[:12]}-{secrets.token_hex(8)}"
        return self.group

    def give_up(self) -> None:
        """Cancels the launch."""
        self._given_up.set()

    def given_up(self) -> bool:
        """Reports whether the launch was cancelled."""
        return self._given_up.is_set()


class Driver:
    """One connection. A later driver numbers its calls from the start, so calls belong to a connection."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn
        self._lock = threading.Lock()
        self._launches: dict[int, Launch] = {}  # by call; guarded by _lock
        self._gone = False  # the connection has ended; guarded by _lock

    def say(self, message: Mapping[str, Any]) -> None:
        """Sends a message to the driver, if it is connected."""
        line = jsonlines.encode(message, str)
        with self._lock:
            try:
                jsonlines.write(self._conn, line)
            except OSError:  # after half a line nothing can be sent
                self.hang_up()

    def hang_up(self) -> None:
        """Closes the connection; its reader sees the end."""
        with contextlib.suppress(OSError):
            self._conn.shutdown(socket.SHUT_RDWR)

    def launch(self, call: int) -> Launch:
        """Registers the launch of a call until over(), and returns it; cancels it if the driver is lost."""
        with self._lock:
            launch = self._launches.setdefault(call, Launch())
            if self._gone:
                launch.give_up()
            return launch

    def registered(self, call: int) -> Launch | None:
        """Returns the launch of a call; None if it has ended."""
        with self._lock:
            return self._launches.get(call)

    def over(self, call: int) -> None:
        """Removes a launch that has ended."""
        with self._lock:
            self._launches.pop(call, None)

    def gone(self) -> list[str]:
        """Cancels the launches of a lost driver, so that they do not compete with those of the next driver.

        Returns the job groups to cancel. Running agents are kept: a stage that holds their slots ends with
        them.
        """
        with self._lock:
            self._gone = True
            for launch in self._launches.values():
                launch.orphaned = True
            launches = [launch for launch in self._launches.values() if not launch.holds]
        for launch in launches:
            launch.give_up()
        return [launch.group for launch in launches if launch.group]
