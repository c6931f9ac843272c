"""Executors of Spark on a host that does not answer, which Spark misses only after spark.network.timeout."""

from __future__ import annotations

import socket
from typing import Any

_TIMEOUT = "spark.network.timeout"
_DEFAULT = "120s"


def waits(session: Any, host: str) -> str:
    """Returns what a launch waits for while Spark counts a lost host's executors as alive."""
    return (
        f"Spark still counts its executors on {host} as alive, and may choose them: "
        f"it gives them up after {_TIMEOUT} = {session.conf(_TIMEOUT, _DEFAULT)}"
    )


def replace(sc: Any, host: str) -> int:
    """Has Spark end its executors on a host, and request others for them; returns how many.

    killExecutors would lower the number of executors that the application asks for. An error says that Spark has
    refused one: its master cannot do it.
    """
    known = names(host)
    replaced = 0
    executors = sc._jsc.sc().statusStore().executorList(True)
    for i in range(executors.size()):
        executor = executors.apply(i)
        on, _, _ = executor.hostPort().rpartition(":")
        if executor.id() == "driver" or known.isdisjoint(names(on)):
            continue
        if not sc._jsc.sc().killAndReplaceExecutor(executor.id()):
            raise RuntimeError(f"Spark does not replace its executor {executor.id()} on {host}")
        replaced += 1
    return replaced


def names(host: str) -> set[str]:
    """Returns the names and addresses by which Spark and an agent may call the same host."""
    host = host.strip("[]")
    found = {host}
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:  # a name that this machine does not know
        addresses = set()
    numeric = host in addresses
    if not numeric:
        found.add(host.partition(".")[0])
    return found | {a for a in addresses if not a.startswith("127.") and a != "::1"}
